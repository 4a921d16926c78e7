"""Alive and ready: which of both a query is at each moment, and the reason that is given where it is not."""

from __future__ import annotations

import pytest

from tallystream.testing import ManualClock
from tallystream_aggregator.health.health import MAX_SILENCE_S, Status


@pytest.fixture
def clock() -> ManualClock:
    """A clock turned by hand."""
    return ManualClock()


def test_a_query_that_starts_or_stands_by_is_alive_and_not_ready(clock: ManualClock) -> None:
    """However long that takes: to be started again would help none."""
    status = Status(clock)
    clock.advance(10 * MAX_SILENCE_S)
    assert (status.unhealthy_reason(), status.unready_reason()) == (None, "starting")
    status.stand_by()
    clock.advance(10 * MAX_SILENCE_S)
    assert (status.unhealthy_reason(), status.unready_reason()) == (None, "standing by")


def test_it_is_ready_when_the_first_batch_is_done(clock: ManualClock) -> None:
    """With its number; begun alone is not enough."""
    status = Status(clock)
    status.run()
    assert status.unready_reason() == "the first batch is not done"
    status.checked(0)
    assert (status.unhealthy_reason(), status.unready_reason(), status.batch) == (None, None, 0)


def test_a_query_that_looked_and_found_nothing_is_ready(clock: ManualClock) -> None:
    """A topic that is empty yet is no reason to take its reader for one that does not work."""
    status = Status(clock)
    status.run()
    status.checked()
    assert (status.unready_reason(), status.batch) == (None, None)


def test_a_query_without_input_stays_alive_by_looking(clock: ManualClock) -> None:
    """No batch for hours, but a look in each limit."""
    status = Status(clock)
    status.run()
    status.checked(7)
    for _ in range(20):
        clock.advance(MAX_SILENCE_S - 1)
        status.checked()
        assert (status.unhealthy_reason(), status.unready_reason()) == (None, None)


def test_a_query_that_does_neither_is_taken_for_stuck(clock: ManualClock) -> None:
    """Beyond the limit, with the seconds in the reason; a look makes it well again."""
    status = Status(clock)
    status.run()
    status.checked(7)
    clock.advance(MAX_SILENCE_S + 1)
    assert (
        status.unhealthy_reason()
        == status.unready_reason()
        == "no batch was finished, and no check for records was made, for 301 s"
    )
    status.checked()
    assert status.unhealthy_reason() is None


def test_a_long_trigger_has_a_longer_limit(clock: ManualClock) -> None:
    """Twenty intervals, where they are longer than the usual limit."""
    status = Status(clock, trigger_s=3600)
    status.run()
    clock.advance(19 * 3600)
    assert status.unhealthy_reason() is None
    clock.advance(2 * 3600)
    assert status.unhealthy_reason() is not None


def test_waiting_for_a_store_is_alive_and_not_ready(clock: ManualClock) -> None:
    """An outage of hours must not have the shipper killed, but nobody shall think that points arrive."""
    status = Status(clock)
    status.run()
    status.checked(7)
    status.waiting_for = "the store"
    clock.advance(10 * MAX_SILENCE_S)
    assert (status.unhealthy_reason(), status.unready_reason()) == (None, "waiting for the store")


def test_a_query_that_has_ended_is_dead(clock: ManualClock) -> None:
    """Whatever it had done before."""
    status = Status(clock)
    status.run()
    status.checked(7)
    status.end()
    assert status.unhealthy_reason() == status.unready_reason() == "the query has ended"
