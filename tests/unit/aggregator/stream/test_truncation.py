"""What a log has lost after it was read."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.simulation.direct import METRICS, Direct
from tallystream_aggregator.stream import truncation
from tallystream_aggregator.stream.broker import Bounds, BrokerError, OffsetAndEpoch, Place, StoppedError
from tallystream_aggregator.stream.truncation import truncations

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("elect"), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 30)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
    ),
    max_size=12,
)


@given(before=STEPS, after=STEPS)
def test_the_first_lost_offset_is_found(before: list[tuple[str, int]], after: list[tuple[str, int]]) -> None:
    """It is the first one at which the log has another record than the one that was read there, or none."""
    direct = Direct()
    partition, values = direct.cluster.partition(METRICS), iter(range(1000))

    def play(steps: list[tuple[str, int]]) -> None:
        for kind, number in steps:
            if kind == "append":
                direct.feed(*(next(values) for _ in range(number)))
            elif kind == "elect":
                partition.epoch += 1
            elif kind == "truncate":
                partition.truncate(min(max(number, partition.start), partition.end))
            else:
                partition.delete_before(number)

    play(before)
    direct.feed(next(values))
    last, read = partition.entries[-1], {entry.offset: entry.value for entry in partition.entries}
    play(after)
    now = {entry.offset: entry.value for entry in partition.entries}
    lost = [offset for offset, value in read.items() if offset >= partition.start and now.get(offset) != value]
    found = truncations(direct.broker, {METRICS: OffsetAndEpoch(last.offset, last.epoch)})
    known = partition.start <= last.offset
    assert found == ({METRICS: min(lost)} if lost and known else {})


def test_a_stop_is_noticed_while_a_log_that_is_too_short_is_looked_at_again() -> None:
    """It may take several seconds."""
    direct = Direct()
    with pytest.raises(StoppedError):
        truncations(direct.broker, {METRICS: OffsetAndEpoch(5, 0)}, lambda: True)


def test_an_older_end_that_a_broker_names_once_is_not_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was isolated may not know the newest records. The log is looked at again."""
    direct = Direct()
    direct.feed(1, 2, 3)
    bounds, older = direct.broker.bounds, [Bounds(0, 1, 1)]

    def first_older(places: Collection[Place]) -> dict[Place, Bounds]:
        return {METRICS: older.pop()} if older else bounds(places)

    monkeypatch.setattr(direct.broker, "bounds", first_older)
    last = direct.cluster.partition(METRICS).entries[2]
    last_records = {METRICS: OffsetAndEpoch(last.offset, last.epoch)}
    with pytest.raises(BrokerError, match="sends nothing from 2 on"):
        truncations(direct.broker, last_records)
    assert truncations(direct.broker, last_records) == {}


def test_a_record_that_is_deleted_meanwhile_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there when the bounds were asked."""
    direct = Direct()
    direct.feed(1, 2, 3)
    direct.cluster.partition(METRICS).delete_before(2)
    bounds, older = direct.broker.bounds, [Bounds(0, 3, 3)]
    monkeypatch.setattr(direct.broker, "bounds", lambda places: {METRICS: older.pop()} if older else bounds(places))
    assert truncations(direct.broker, {METRICS: OffsetAndEpoch(1, 0)}) == {}


def test_a_partition_with_many_records_does_not_hide_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are read together, and the first one goes on sending."""
    monkeypatch.setattr(truncation, "READ_AT_ONCE", 1)
    direct, other = Direct(partitions=2), Place("metrics", 1)
    direct.feed(*range(200))
    direct.feed(1, place=other)
    assert truncations(direct.broker, dict.fromkeys((METRICS, other), OffsetAndEpoch(0, 0))) == {}


def test_a_stop_ends_the_look_at_a_log() -> None:
    """A stop that is requested meanwhile is noticed, whether the log has the record or not."""
    direct = Direct()
    direct.feed(1)
    for offset in (0, 1):
        with pytest.raises(StoppedError):
            truncations(direct.broker, {METRICS: OffsetAndEpoch(offset, 0)}, lambda: True)
