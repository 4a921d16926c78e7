"""The values of a table do not depend on the order in which its partitions are read."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.replayed import TopicRecord, lasting, replay
from support.schedules import BEGIN_MS, explicit_buckets, sketch
from support.tables import Sums, Tables, table_settings
from tallystream.ulid import new_ulid

LIFE = new_ulid(BEGIN_MS)
KINDS = ("counter", "float_counter", "meter", "histogram", "timer", "buckets", "position")


def snapshot(seq: int, metrics: list[dict[str, Any]], *, complete: bool = True, part: int = 0) -> bytes:
    """Return a snapshot of the life with these metrics."""
    header = {"app": "a", "life": LIFE, "part": part, "seq": seq, "ts": 0, "every_ms": 1000, "final": False}
    return json.dumps({**header, "complete": complete, "metrics": metrics}).encode()


def histogram(number: int, **extremes: float | None) -> dict[str, Any]:
    """Return a histogram that counted this number of values."""
    return {"name": "h", "type": "histogram", "count": number, "sum": float(number), **extremes}


def metric(chance: random.Random, kind: str, part: int) -> dict[str, Any]:
    """Return a metric with random values, whose count may be lower than in any other snapshot."""
    number = chance.randrange(6)
    found: dict[str, Any] = {"name": f"{kind}{part}", "type": kind}
    if kind == "float_counter":
        return found | {"sum": number * 0.1}
    if kind == "position":
        return found | {"tags": {"topic": "t"}, "start": number, "position": number + part}
    found["count"] = number
    if kind in ("histogram", "timer"):
        # The same count has the same sum: of two values with the same count and seq, no rule could choose one.
        found |= {"sum": number * 1.5} | {n: chance.choice([None, chance.random()]) for n in ("min", "max")}
        found |= {"sketch": sketch(random.Random(number), number)} if number % 2 else {}
    if kind == "buckets":
        body, tags = explicit_buckets(random.Random(number), number, {})
        found |= body | {"tags": tags}
    if kind in ("meter", "timer"):
        found |= {f"{name}_rate": chance.random() for name in ("mean", "m1", "m5", "m15")}
    return found


def written(chance: random.Random, *, complete: bool) -> list[list[TopicRecord]]:
    """Return the records of three partitions. The snapshots of a life are in any of them, with rising seqs in each."""
    partitions: list[list[TopicRecord]] = [[], [], []]
    for seq in range(1, chance.randint(3, 12)):
        part, partition = chance.randrange(2), chance.randrange(3)
        kinds = chance.sample(KINDS, chance.randint(1, len(KINDS)))
        value = snapshot(seq, [metric(chance, kind, part) for kind in kinds], complete=complete, part=part)
        partitions[partition].append(TopicRecord(b"i", value, BEGIN_MS + seq, partition, len(partitions[partition])))
    return partitions


def interleaved(chance: random.Random, partitions: list[list[TopicRecord]]) -> list[TopicRecord]:
    """Return the records in a random order that keeps that of each partition."""
    order = [number for number, records in enumerate(partitions) for _ in records]
    chance.shuffle(order)
    left = [iter(records) for records in partitions]
    return [next(left[number]) for number in order]


def values(records: list[TopicRecord]) -> Sums:
    """Return the values of the sums after the records, in this order. Verify must agree."""
    tables = Tables(records, table_settings())
    ends = dict.fromkeys(range(3), 0)
    for record in records:
        ends[record.partition] += 1
        tables.step(ends)
    wanted = replay(records)
    assert tables.dead == wanted.dead
    assert not wanted.differing(tables.sums)
    return lasting(tables.sums)


@examples(150)
@given(st.integers(0, 2**32), st.booleans())
def test_values_do_not_depend_on_the_order_of_partitions(seed: int, complete: bool) -> None:
    """Counts, sums, min, max, sketches and positions are the same, also where a count falls from seq to seq."""
    chance = random.Random(seed)
    partitions = written(chance, complete=complete)
    found = [values(interleaved(chance, partitions)) for _ in range(3)]
    assert found[0] == found[1] == found[2]


@examples(100)
@given(st.integers(0, 2**32), st.booleans())
def test_values_do_not_depend_on_restarts(seed: int, complete: bool) -> None:
    """A table that begins again reads partition by partition, from where its state or its rows are."""
    chance = random.Random(seed)
    records = interleaved(chance, written(chance, complete=complete))
    tables, ends = Tables(records, table_settings(), 1, chance), dict.fromkeys(range(3), 0)
    for record in records:
        ends[record.partition] += 1
        if chance.random() < 0.3:
            tables.begin_again(from_rows=chance.random() < 0.5)
        tables.step(ends)
    wanted = lasting(replay(records).sums)
    assert lasting(tables.sums) == lasting(tables.all_sums()) == wanted
