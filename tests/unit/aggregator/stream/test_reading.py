"""Reads of committed records: what is missing for a moment is never taken for records that are not there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.simulation.client import SimulatedSource
from support.simulation.direct import METRICS, ROWS, Direct
from tallystream_aggregator.stream.broker import Bounds, BrokerError, Output, Place, StoppedError
from tallystream_aggregator.stream.positions import lowest
from tallystream_aggregator.stream.reading import committed_records, read_range


def written(number: int) -> Direct:
    """Return a cluster with so many records in one transaction."""
    direct = Direct()
    direct.broker.writer("id").commit([Output(ROWS, b"%d" % n, b"row") for n in range(number)])
    direct.flush()
    return direct


def test_a_range_ends_before_its_end() -> None:
    """A marker, and records after the range, are left out."""
    direct = written(3)
    assert [record[0] for record in committed_records(direct.broker, ROWS)] == [0, 1, 2]
    assert [record[0] for record in read_range(direct.broker, ROWS, Bounds(1, 2, 2))] == [1]


@pytest.mark.parametrize(("place", "end"), [(Place("other", 0), 3), (ROWS, 5)])
def test_records_that_were_there_a_moment_ago_are_not_taken_for_none(place: Place, end: int) -> None:
    """The partition is missing in an answer, or shorter. An older positions row would be taken for the newest one."""
    direct = written(3)
    with pytest.raises(BrokerError, match=r"sends nothing|no partition|were deleted"):
        list(read_range(direct.broker, place, Bounds(0, end, end)))


def test_deleted_records_are_an_error() -> None:
    """They were there when the bounds were asked."""
    direct = written(3)
    direct.cluster.partition(ROWS).delete_before(2)
    with pytest.raises(BrokerError, match="deleted before they were read"):
        list(read_range(direct.broker, ROWS, Bounds(0, 4, 4)))


def test_a_partition_that_sends_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader says that it has the records. A stop ends the wait as well."""
    direct = written(3)

    def read(*_: object) -> list[Any]:
        direct.pass_time(0.1)
        return []

    monkeypatch.setattr(SimulatedSource, "read", read)
    began_s = direct.monotonic()
    with pytest.raises(BrokerError, match="sends nothing"):
        list(committed_records(direct.broker, ROWS))
    assert 5 < direct.monotonic() - began_s < 20
    with pytest.raises(StoppedError):
        list(committed_records(direct.broker, ROWS, lambda: True))


PLACES = st.sampled_from([METRICS, ROWS])


@given(st.lists(st.dictionaries(PLACES, st.integers(0, 9))))
def test_the_lowest_positions_are_those_that_all_have_reached(each: list[dict[Place, int]]) -> None:
    """A partition that one of them does not read has none. Of nobody there are none."""
    found = lowest(each)
    for place in (METRICS, ROWS):
        known = [one[place] for one in each if place in one]
        assert found.get(place) == (min(known) if each and len(known) == len(each) else None)
