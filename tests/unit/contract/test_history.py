"""The checker of histories: it accepts what a correct reader sees, and finds each kind of planted violation."""

from __future__ import annotations

import copy
import json
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fleet import NAME
from support.fuzz import examples
from support.history import Line, main, violations
from support.journals import of_rows, of_sums
from support.replayed import TopicRecord
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sums import Sum

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READERS = ("agg", "store")


def history(seed: int, length: int = 60) -> tuple[list[Line], list[Line]]:
    """Return the records of three instances, a second apart, and what two readers see, each up to two seconds later.

    The expected sums are those of a table of all counts, which shares nothing with the checker.
    """
    chance = random.Random(seed)
    records: list[Line] = []
    counts: dict[tuple[str, str], int] = {}
    table: dict[tuple[str, str], int] = {}
    seen: list[Line] = []
    last: dict[tuple[str, str], int] = {}
    for offset in range(length):
        instance, at = f"i-{chance.randrange(3)}", 1000.0 + offset
        record: Line = {"at": at, "partition": 0, "offset": offset, "instance": instance}
        if chance.random() < 0.1:
            table = {row: count for row, count in table.items() if row[0] != instance}
        elif chance.random() < 0.2 and offset < length - 1 and (sent := known_of(records, instance)):
            record = {**chance.choice(sent), "at": at, "offset": offset}  # it arrives late, and changes nothing
        else:
            life = chance.choice("ab")
            counts[instance, life] = counts.get((instance, life), 0) + chance.randrange(1, 9)
            table[instance, life] = counts[instance, life]
            record |= {"life": life, "part": 0, "sum": life, "count": table[instance, life]}
        records.append(record)
        for reader in READERS:
            if offset < length - 1 and chance.random() < 0.5:
                continue
            if reader == "store":  # it is polled, and shows what it showed before
                seen += [{**line, "at": at} for line in lines_of(seen, "store")[-1:]]
            for name in "ab":
                total = sum(count for row, count in table.items() if row[1] == name)
                known = any(one.get("sum") == name for one in records)
                if known and last.get((reader, name)) != total:
                    last[reader, name] = total
                    positions = {"0": offset + 1} if reader == "agg" else None
                    line = {"at": at + 0.5, "reader": reader, "sum": name, "count": total, "positions": positions}
                    seen.append(line)
    return records, seen


@examples(200)
@given(st.integers(0, 10**6))
def test_a_correct_history_has_no_violation(seed: int) -> None:
    """Whatever steps a reader sees: with positions, and without them."""
    assert violations(*history(seed), 60, READERS) == []


def known_of(records: list[Line], instance: str) -> list[Line]:
    return [one for one in records if one["instance"] == instance and "life" in one]


def lines_of(seen: list[Line], reader: str) -> list[Line]:
    return [line for line in seen if line["reader"] == reader]


def lose(records: list[Line], seen: list[Line]) -> None:
    """The last sum of a store does not arrive."""
    last = lines_of(seen, "store")[-1]
    seen[:] = [line for line in seen if {**line, "at": 0} != {**last, "at": 0}]


def invent(records: list[Line], seen: list[Line]) -> None:
    """A sum has a name that nobody published."""
    seen.append({**seen[-1], "sum": "other"})


def add_one(records: list[Line], seen: list[Line]) -> None:
    """A sum with positions is not the sum of the records before them."""
    lines_of(seen, "agg")[1]["count"] += 1


def repeat(records: list[Line], seen: list[Line]) -> None:
    """A reader sees an old sum after a newer one."""
    old = next(line for line in lines_of(seen, "agg") if line["sum"] == "a")
    seen.append({**old, "at": 2000.0})


def delay(records: list[Line], seen: list[Line]) -> None:
    """The last sums are seen two minutes later than their records."""
    for line in seen[-2:]:
        line["at"] += 120


def fall(records: list[Line], seen: list[Line]) -> None:
    """A store shows a value again that it showed before."""
    first, *_, last = [line for line in lines_of(seen, "store") if line["sum"] == "a"]
    at = seen.index(last)
    seen.insert(at + 1, {**first, "at": last["at"]})
    seen.insert(at + 2, dict(last))


def see_nothing(records: list[Line], seen: list[Line]) -> None:
    """A reader has read another topic."""
    seen.clear()


def lower(records: list[Line], seen: list[Line]) -> None:
    """A count that falls within a life is shown as it is."""
    record = {**next(one for one in reversed(records) if "life" in one), "offset": len(records), "at": 1100.0}
    records.append(record | {"count": record["count"] - 1})
    total = next(line["count"] for line in reversed(seen) if line["sum"] == record["sum"])
    for reader, positions in (("agg", {"0": len(records)}), ("store", None)):
        line = {"at": 1101.0, "reader": reader, "sum": record["sum"], "count": total - 1, "positions": positions}
        seen.append(line)


PLANTED: dict[str, tuple[Callable[[list[Line], list[Line]], None], str]] = {
    "lost": (lose, "is acknowledged"),
    "never published": (invent, "nothing was published for it"),
    "no function of its positions": (add_one, "at the positions"),
    "positions that go back": (repeat, "positions go back"),
    "late": (delay, "s after the record"),
    "fall": (fall, "it was"),
    "nothing was read": (see_nothing, "is None"),
    "a count that falls": (lower, "it was"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found(name: str) -> None:
    """Each kind, in histories of which most have no tombstone in the wrong place."""
    plant, message = PLANTED[name]
    found: list[bool] = []
    for seed in range(20):
        records, seen = copy.deepcopy(history(seed))
        plant(records, seen)
        found.append(any(message in line for line in violations(records, seen, 60, READERS)))
    assert all(found)


TOPICS = Topics()


def on_topics(counts: tuple[int, int]) -> list[Line]:
    """Return what readers of both topics see after two records, an instance each, and the cut of their rows."""
    rows = [
        (f'["life","app","i-{n}","L",0]', {"metrics": [{"name": NAME, "tags": {"part": "0"}, "count": count}]})
        for n, count in enumerate(counts)
    ]
    rows += [('["shard",0]', {"offsets": {"metrics:0": 1}}), ('["positions",0]', {})]
    table = [TopicRecord(key.encode(), json.dumps(value).encode(), 0, 0, n) for n, (key, value) in enumerate(rows)]
    total = Sum(app="app", name=NAME, type="counter", tags={"part": "0"}, count=sum(counts), ts=0)
    total.offsets = {TOPICS.metrics: {"0": 1}}
    agg = [TopicRecord(b"k", total.value(), 0, 0, 0)]
    return [*of_sums(TOPICS, agg, [3.0]), *of_rows(TOPICS, table, [3.0] * len(table))]


def test_readers_of_both_topics_are_journalled() -> None:
    """The rows of a transaction are a cut at the offsets of their shard. A count that is too low is found in both."""
    part: Line = {"partition": 0, "life": "L", "part": 0, "sum": "0"}
    records = [{**part, "at": 1.0, "offset": n, "instance": f"i-{n}", "count": count} for n, count in enumerate((5, 7))]
    readers = (TOPICS.agg, TOPICS.table)
    assert violations(records, on_topics((5, 7)), 60, readers) == []
    found = violations(records, on_topics((5, 6)), 60, readers)
    assert [one.partition(" ")[0] for one in found if "at the positions" in one] == list(readers)


def test_the_script_names_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with 0 if all promises are kept, else with 1 and a line each."""
    records, seen = history(1)

    def run(seen: list[Any]) -> tuple[int, str]:
        for path, lines in (("acknowledged.jsonl", records), ("seen.jsonl", seen)):
            (tmp_path / path).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["history", str(tmp_path), "--readers", *READERS])
        return main(), capsys.readouterr().out

    code, output = run(seen)
    assert (code, output) == (0, f"60 records, {len(seen)} sums: all promises are kept\n")
    lose(records, seen)
    code, output = run(seen)
    assert code == 1
    assert "is acknowledged" in output
