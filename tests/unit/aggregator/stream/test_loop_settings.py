"""A loop that goes on after a kill with other settings: what is published stays, and the records that follow count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support import otlp
from support.fuzz import examples
from support.simulation.checkpoints import Batch
from support.simulation.direct import METRICS, ROWS, TOPICS, Direct
from tallystream_aggregator.stream import loop as loop_module
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.positions import newest_row
from tallystream_aggregator.table import TableSettings
from tallystream_aggregator.times import DAY_MS

OTHER = Place("metrics", 1)


def limited(max_table_bytes: int, **settings: Any) -> TableSettings:
    """Return settings whose tables have so much memory: 10,000 bytes are room for one short life."""
    return TableSettings(short_form_every_ms=5_000, max_table_bytes=max_table_bytes, **settings)


class Phase(NamedTuple):
    """A loop with a limit of memory, which reads batches: a partition, and its instances that have a value.

    It may be killed when all is published, and it may begin without the state that is stored.
    """

    limit: int
    batches: list[tuple[int, list[int]]]
    killed: bool
    from_rows: bool


NOTHING_NEW = Phase(80_000, [], killed=False, from_rows=True)
BATCHES = st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 4), min_size=1, max_size=3)), max_size=3)
PHASES = st.lists(
    st.builds(Phase, st.sampled_from([10_000, 15_000, 80_000]), BATCHES, st.booleans(), st.booleans()), max_size=5
)


def play(phases: list[Phase], partitions: int, *, disturbed: bool) -> list[Any]:
    """Return the newest counts and the dead letters after each phase. Unless it is disturbed, none is killed."""
    direct, found, values = Direct(partitions=partitions), list[Any](), count(1)
    for attempt, phase in enumerate(phases):
        batches = iter(phase.batches)

        def fail(request: str, phase: Phase = phase, batches: Iterator[tuple[int, list[int]]] = batches) -> None:
            ends = {place: direct.cluster.partition(place).end for place in direct.cluster.places(METRICS.topic)}
            if request != "read" or direct.published() != ends:
                return
            partition, instances = next(batches, (0, []))
            for instance in instances:
                name, place = f"{instance}-{partition}", Place("metrics", partition % partitions)
                direct.feed(next(values), key=name.encode(), name=name, place=place)
            if not instances and disturbed and phase.killed:
                raise MemoryError

        direct.table, direct.fail = limited(phase.limit), fail
        with suppress(MemoryError):
            direct.loop().run_epoch(Batch(0) if disturbed and phase.from_rows else direct.store, (1, attempt), 1)
        direct.fail = lambda _: None
        letters = map(json.loads, direct.values(TOPICS.dead))
        counts = {value["name"]: value["count"] for value in map(json.loads, direct.values())}
        found.append((counts, [(letter["partition"], letter["offset"]) for letter in letters]))
    return found


@examples(60)
@example([Phase(10_000, [(0, [0]), (0, [1, 2])], True, False), Phase(80_000, [(0, [1])], False, True)], 1)
@example([Phase(80_000, [(0, [0, 1])], True, False), Phase(10_000, [(0, [2])], True, False), NOTHING_NEW], 1)
@example([Phase(10_000, [(1, [0]), (0, [1])], True, False), Phase(10_000, [(1, [0])], False, False)], 2)
@given(PHASES, st.integers(1, 2))
def test_a_table_goes_on_with_another_limit_of_memory(phases: list[Phase], partitions: int) -> None:
    """After a kill, what was published is replayed with the limit of then, and what comes after it with the new one.

    A replay reads partitions in another order. What a full table has refused stays refused, and what it has counted
    stays counted: neither the state nor the rows lead back to before a start with another limit.
    """
    assert play(phases, partitions, disturbed=True) == play(phases, partitions, disturbed=False)


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("from_rows", [False, True])
def test_a_topic_that_was_read_as_json_is_named_as_otlp_after_a_kill(
    from_rows: bool, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern matched it, so its records are dead letters. They stay, and the records that follow them count."""
    monkeypatch.setattr(loop_module, "ROWS_EVERY_S", 60)  # the dead letter is replayed
    direct = Direct(partitions=partitions)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)

    def feed() -> None:
        point = otlp.number(5, start_ns=1, time_ns=direct.cluster.now_ms * 10**6)
        resource = otlp.resource_metrics([otlp.counter("n", point)], service__instance__id="app-1")
        direct.cluster.append(METRICS, None, otlp.encode(resource))

    def fail(request: str) -> None:
        if request == "read" and direct.published() == positions(1):
            raise MemoryError
        if request == "read" and not direct.cluster.partition(METRICS).end:
            feed()

    def positions(first: int) -> dict[Place, int]:
        return {METRICS: first} | ({OTHER: 0} if partitions > 1 else {})

    direct.fail = fail
    with pytest.raises(MemoryError):
        loop.run_epoch(direct.store, (1, 1), 1)
    direct.fail = lambda _: None
    assert len(direct.values("metrics-dead")) == 1
    direct.table = TableSettings(otlp_topics=("metrics",))
    store = Batch(0) if from_rows else direct.store
    direct.loop().run_epoch(store, (2, 0), 1)
    feed()
    direct.loop().run_epoch(store, (3, 0), 1)
    assert direct.published() == positions(2)
    assert len(direct.values("metrics-dead")) == 1
    assert [b'"count":5' in value for value in direct.values()] == [True]


def test_no_replay_begins_before_the_table_forgets_after_another_time() -> None:
    """It would forget other lives. A table that begins again from its rows keeps that begin."""
    direct, begins = Direct(), list[int]()
    for days, store in ((7, direct.store), (8, direct.store), (8, direct.store), (8, Batch(0)), (9, direct.store)):
        direct.table = limited(2**31, forget_after_ms=days * DAY_MS)
        direct.feed(days)
        direct.loop().run_epoch(store, (len(begins) + 1, 0), 1)
        row = newest_row(direct.broker, ROWS, 0)
        assert row is not None
        begins.append(row.replay_since)
    assert begins[0] == 1
    assert begins[0] < begins[1] == begins[2] == begins[3] < begins[4]
