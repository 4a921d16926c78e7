"""The status of a command: alive, ready, and the reasons."""

from __future__ import annotations

import pytest

from tallystream.testing import ManualClock
from tallystream_aggregator.health.health import MAX_SILENCE_S, Status


@pytest.fixture
def clock() -> ManualClock:
    """A clock that only the test advances."""
    return ManualClock()


def test_a_command_that_starts_or_stands_by_is_alive_and_not_ready(clock: ManualClock) -> None:
    """The time does not matter: a restart would not help."""
    status = Status(clock)
    clock.advance(10 * MAX_SILENCE_S)
    assert (status.unhealthy_reason(), status.unready_reason()) == (None, "starting")
    status.stand_by()
    clock.advance(10 * MAX_SILENCE_S)
    assert (status.unhealthy_reason(), status.unready_reason()) == (None, "standing by")


def test_a_command_is_ready_after_its_first_check(clock: ManualClock) -> None:
    """It is not ready when it has only started."""
    status = Status(clock)
    status.run()
    assert status.unready_reason() == "the first check is not done"
    status.checked()
    assert (status.unhealthy_reason(), status.unready_reason()) == (None, None)


def test_a_command_that_does_not_check_for_records_is_stuck(clock: ManualClock) -> None:
    """The reason has the seconds. The next check makes it alive again."""
    status = Status(clock)
    status.run()
    status.checked()
    clock.advance(MAX_SILENCE_S - 1)
    assert status.unready_reason() is None
    clock.advance(2)
    assert status.unhealthy_reason() == status.unready_reason() == "the last check was 301 s ago"
    status.checked()
    assert status.unhealthy_reason() is None


def test_waiting_for_a_store_is_alive_and_not_ready(clock: ManualClock) -> None:
    """An outage must not restart the shipper, and its points do not arrive."""
    status = Status(clock)
    status.run()
    status.checked()
    status.waiting_for = "the store"
    clock.advance(10 * MAX_SILENCE_S)
    assert (status.unhealthy_reason(), status.unready_reason()) == (None, "waiting for the store")
