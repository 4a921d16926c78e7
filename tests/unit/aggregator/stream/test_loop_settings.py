"""A loop that goes on after a kill with other settings: what is published stays, and the records that follow count."""

from __future__ import annotations

from typing import Any

import pytest

from support import otlp
from support.simulation.checkpoints import Batch
from support.simulation.direct import METRICS, ROWS, Direct
from tallystream_aggregator.stream import loop as loop_module
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.positions import newest_row
from tallystream_aggregator.table import TableSettings
from tallystream_aggregator.times import DAY_MS

OTHER = Place("metrics", 1)


def limited(max_table_bytes: int, **settings: Any) -> TableSettings:
    """Return settings whose tables have so much memory: 10,000 bytes are room for one short life."""
    return TableSettings(short_form_every_ms=5_000, max_table_bytes=max_table_bytes, **settings)


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("from_rows", [False, True])
@pytest.mark.parametrize(("before", "now"), [(10_000, 80_000), (80_000, 10_000)])
def test_a_table_goes_on_with_another_limit_of_memory(before: int, now: int, from_rows: bool, partitions: int) -> None:
    """After a kill, what was published is replayed with the limit of then, and what comes after it with the new one."""
    direct = Direct(partitions=partitions, table=limited(before))
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)

    direct.feed(1)

    def fail(request: str) -> None:
        published = sum((direct.published() or {}).values())
        if request == "read" and published == 1 == direct.cluster.partition(METRICS).end:  # with its row
            direct.feed(2, key=b"app-2", name="two")
            direct.feed(3, key=b"app-3", name="three")
        elif request == "read" and published == 3:
            raise MemoryError

    direct.fail = fail
    with pytest.raises(MemoryError):
        loop.run_epoch(direct.store, (1, 1), 1)
    direct.fail = lambda _: None
    published, refused = direct.values(), len(direct.values("metrics-dead"))
    direct.table = limited(now)
    loop = direct.loop()
    store = Batch(0) if from_rows else direct.store
    loop.run_epoch(store, (2, 0), 1)
    assert direct.values() == published
    assert refused == (2 if before < now else 0)
    direct.feed(4, key=b"app-4", name="four")
    direct.feed(5, key=b"app-2", name="two")
    loop.run_epoch(store, (2, 1), 1)
    assert len(direct.values("metrics-dead")) == refused + (before > now)
    assert any(b'"count":5' in value for value in direct.values())
    assert any(b'"count":4' in value for value in direct.values()) == (before < now)


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("from_rows", [False, True])
@pytest.mark.parametrize(("before", "now"), [(10_000, 80_000), (80_000, 10_000)])
def test_records_of_two_limits_are_never_replayed_with_one(
    before: int, now: int, from_rows: bool, partitions: int
) -> None:
    """A kill soon after a start with another limit: neither the state nor the rows lead back to before the start."""
    direct = Direct(partitions=partitions, table=limited(before))
    direct.loop().run_epoch(direct.store, (1, 0), 1)

    def fail(request: str) -> None:
        published, end = sum((direct.published() or {}).values()), direct.cluster.partition(METRICS).end
        if request != "read" or published < end:
            return
        if end == killed_at:
            raise MemoryError
        direct.feed(end + 1, key=b"app-%d" % (end + 1), name=f"n{end + 1}")

    for killed_at, limit in ((2, before), (3, now)):
        direct.table, direct.fail = limited(limit), fail
        with pytest.raises(MemoryError):
            direct.loop().run_epoch(direct.store, (killed_at, 0), 1)
    direct.fail = lambda _: None
    refused = len(direct.values("metrics-dead"))
    assert refused == 1
    direct.feed(4, key=b"app-1", name="n1")
    direct.feed(5, key=b"app-2", name="n2")
    direct.loop().run_epoch(Batch(0) if from_rows else direct.store, (4, 0), 1)
    assert any(b'"count":4' in value for value in direct.values())
    assert any(b'"count":5' in value for value in direct.values())
    assert len(direct.values("metrics-dead")) == refused


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


@pytest.mark.parametrize("from_rows", [False, True])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_a_full_table_has_counted_stays_whatever_partition_is_read_first(
    order: tuple[int, int], from_rows: bool
) -> None:
    """The second life has no room. A replay that reads its partition first does not take it for the one that has."""
    direct = Direct(partitions=2, table=limited(10_000))
    direct.loop().run_epoch(direct.store, (1, 0), 1)

    def fail(request: str) -> None:
        published = sum((direct.published() or {}).values())
        if request == "read" and published == 2:
            raise MemoryError
        if request == "read" and published == sum(direct.cluster.partition(Place("metrics", p)).end for p in order):
            number = published + 1
            direct.feed(number, key=b"app-%d" % number, name=f"n{number}", place=Place("metrics", order[published]))

    direct.fail = fail
    with pytest.raises(MemoryError):
        direct.loop().run_epoch(direct.store, (2, 0), 1)
    direct.fail = lambda _: None
    assert len(direct.values("metrics-dead")) == 1
    direct.feed(9, key=b"app-1", name="n1", place=Place("metrics", order[0]))
    direct.loop().run_epoch(Batch(0) if from_rows else direct.store, (3, 0), 1)
    assert any(b'"count":9' in value for value in direct.values())
    assert len(direct.values("metrics-dead")) == 1
