"""A checker of histories: what was acknowledged, against what each reader has seen and when.

    python tests/support/history.py FOLDER --staleness 60 --readers metrics-agg influxdb

It is written on the standard library alone, and shares no rule with the product. FOLDER has two journals of JSON lines:

- `acknowledged.jsonl`: a line for each record that the broker has acknowledged: `at` (epoch seconds), `partition`,
  `offset`, `instance`, and, but for a tombstone, `life`, `part`, `sum` (the name of its sum) and `count`.
- `seen.jsonl`: a line for each sum that a reader has seen, in this order: `at`, `reader`, `sum`, `count`, and
  `positions`, the next offset by partition, or null if the reader is not told (as a store).

Exit code 1 if a promise is broken; a line says which, by whom, when and where.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Line = dict[str, Any]


class Truth:
    """The sums of the acknowledged records up to some positions: the highest count of each part, added."""

    def __init__(self, records: list[Line]) -> None:
        self.all = records
        self._records: dict[int, list[Line]] = defaultdict(list)
        for record in sorted(records, key=lambda one: one["offset"]):
            self._records[record["partition"]].append(record)
        self.rewind()

    def rewind(self) -> None:
        self._next: dict[int, int] = defaultdict(int)
        self._rows: dict[str, dict[tuple[str, int], Line]] = defaultdict(dict)
        self._highest: dict[tuple[str, str, int], int] = {}  # a late record after a tombstone changes nothing
        self.sums: dict[str, int] = defaultdict(int)

    def advance(self, positions: dict[int, int] | None = None) -> list[tuple[Line, str]]:
        """Add the records before the positions, or all. Return those that changed a sum, with the sum's name."""
        changes = []
        for partition, records in self._records.items():
            while self._next[partition] < len(records):
                record = records[self._next[partition]]
                if positions is not None and record["offset"] >= positions.get(partition, 0):
                    break
                self._next[partition] += 1
                changes += [(record, name) for name in self._add(record)]
        return changes

    def _add(self, record: Line) -> set[str]:
        rows = self._rows[record["instance"]]
        if "life" not in record:
            for row in rows.values():
                self.sums[row["sum"]] -= row["count"]
            gone = {row["sum"] for row in rows.values()}
            rows.clear()
            return gone
        before = rows.get((record["life"], record["part"]), {"count": 0})
        part = record["instance"], record["life"], record["part"]
        if self._highest.get(part, 0) >= record["count"]:
            return set()
        self._highest[part] = record["count"]
        rows[record["life"], record["part"]] = record
        self.sums[record["sum"]] += record["count"] - before["count"]
        return {record["sum"]}


def violations(
    acknowledged: list[Line], seen: list[Line], staleness_s: float, readers: Iterable[str] = ()
) -> list[str]:
    """Return what is wrong in a history, a line each.

    Every reader must see a record within `staleness_s` seconds; it may see one before its producer is told of it. What
    a reader without positions has seen is found by its value, so `acknowledged` must be of one partition then.
    `readers` must have seen something.
    """
    truth = Truth(acknowledged)
    changes = truth.advance()
    found: list[str] = []
    for reader in dict.fromkeys([*readers, *(line["reader"] for line in seen)]):
        lines = [line for line in seen if line["reader"] == reader]
        published = {name for _, name in changes}
        found += [f"{_what(line)}: nothing was published for it" for line in lines if line["sum"] not in published]
        lines = [line for line in lines if line["sum"] in published]
        check = _with_positions if all(line["positions"] is not None for line in lines) else _by_values
        found += check(Truth(acknowledged), lines, staleness_s)
        last = {line["sum"]: line["count"] for line in lines}
        found += [
            f"{reader}: the last {name} is {last.get(name)}, and {total} is acknowledged"
            for name, total in truth.sums.items()
            if last.get(name) != total
        ]
    return found


def _what(line: Line) -> str:
    return f"{line['reader']} at {line['at']:.3f}: {line['sum']} = {line['count']}"


def _late(line: Line, record: Line, staleness_s: float) -> list[str]:
    late_s = line["at"] - record["at"]
    return [f"{_what(line)}: {late_s:.1f} s after the record {record['offset']}"] if late_s > staleness_s else []


def _with_positions(truth: Truth, lines: list[Line], staleness_s: float) -> list[str]:
    """Compare each sum with that of the records before the positions that it names."""
    found: list[str] = []
    positions: dict[int, int] = {}
    newest: dict[str, int] = {}
    waiting: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        name, count = line["sum"], line["count"]
        before, positions = positions, {int(partition): offset for partition, offset in line["positions"].items()}
        if any(positions.get(partition, 0) < offset for partition, offset in before.items()):
            found.append(f"{_what(line)}: positions go back, from {before} to {positions}")
            truth.rewind()
            truth.advance(positions)
        for record, changed in truth.advance(positions):
            waiting[changed].append(record)
        if count != truth.sums[name]:
            found.append(f"{_what(line)}: at the positions {positions} it is {truth.sums[name]}")
        records = waiting.pop(name, [])
        if count < newest.get(name, 0) and all("life" in record for record in records):
            found.append(f"{_what(line)}: it was {newest[name]}")
        newest[name] = count
        for record in records:
            found += _late(line, record, staleness_s)
        # What came and went between two steps has not to be seen.
        waiting = defaultdict(list, {n: w for n, w in waiting.items() if newest.get(n, 0) != truth.sums[n]})
    return found


def _by_values(truth: Truth, lines: list[Line], staleness_s: float) -> list[str]:
    """Find each sum among the values that it had, one after the other."""
    values: dict[str, list[tuple[int, Line]]] = defaultdict(list)
    ends = sorted((record["partition"], record["offset"] + 1) for record, _ in Truth(truth.all).advance())
    for partition, end in ends:
        for record, name in truth.advance({partition: end}):
            values[name].append((truth.sums[name], record))
    found: list[str] = []
    reached: dict[str, int] = defaultdict(int)
    newest: dict[str, int] = {}
    for line in lines:
        name, count = line["sum"], line["count"]
        if count == newest.get(name):
            continue
        history, begin = values[name], reached[name]
        at = next((n for n in range(begin, len(history)) if history[n][0] == count), None)
        if at is not None:
            reached[name] = at + 1
            for _, record in history[begin : at + 1]:
                found += _late(line, record, staleness_s)
        elif count < newest.get(name, 0):
            found.append(f"{_what(line)}: it was {newest[name]}")
        else:
            found.append(f"{_what(line)}: it never had this value")
        newest[name] = count
    return found


def main() -> int:
    """Check the history in a folder; print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--staleness", type=float, default=60.0, help="seconds within which a reader must see a record")
    parser.add_argument("--readers", nargs="+", required=True, help="who must have seen each sum")
    options = parser.parse_args()
    acknowledged, seen = (
        [json.loads(line) for line in (options.folder / name).read_text(encoding="utf-8").splitlines()]
        for name in ("acknowledged.jsonl", "seen.jsonl")
    )
    found = violations(acknowledged, seen, options.staleness, options.readers)
    print(*found or [f"{len(acknowledged)} records, {len(seen)} sums: all promises are kept"], sep="\n")  # noqa: T201
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
