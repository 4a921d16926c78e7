"""Patience with a store that is away: pauses that grow, and an end when a stop is asked for. Nothing sleeps here."""

from __future__ import annotations

import pytest

from tallystream.errors import ConfigError
from tallystream.signals import SignalSafeEvent
from tallystream_aggregator.shipping.retry import FIRST_S, LONGEST_S, StoppedError, pause_s, retry
from tallystream_aggregator.sinks.base import SinkUnavailableError


class _Clock(SignalSafeEvent):
    """An event that is waited on without waiting: it keeps the pauses, and is set after `stop_after` of them."""

    def __init__(self, stop_after: int = 1_000_000) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._stop_after = stop_after

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it is set, at once."""
        assert timeout is not None
        self.pauses.append(timeout)
        if len(self.pauses) == self._stop_after:
            self.set()
        return self.is_set()


class _Store:
    """A store that is away for the first `away` writes."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.written = 0

    def write(self) -> None:
        """Write, or say that the store is away."""
        if self.away:
            self.away -= 1
            raise SinkUnavailableError("the store is away.")
        self.written += 1


def test_pauses_double_up_to_the_longest() -> None:
    """Each pause lies between a half and the whole of the last one's double, never beyond the longest."""
    assert [pause_s(attempt, lambda: 1.0) for attempt in (1, 2, 3, 4)] == [FIRST_S, 0.4, 0.8, 1.6]
    assert [pause_s(attempt, lambda: 0.0) for attempt in (1, 2)] == [FIRST_S / 2, 0.2]
    assert pause_s(10**9, lambda: 1.0) == LONGEST_S
    assert FIRST_S / 2 <= pause_s(1) <= FIRST_S


def test_a_store_that_is_there_is_written_once() -> None:
    """No failure, no pause."""
    clock, store = _Clock(), _Store(away=0)
    assert retry(store.write, clock) == 0
    assert (store.written, clock.pauses) == (1, [])


def test_it_tries_until_the_store_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """The write succeeds once, after growing pauses; the outage is said once, and its end."""
    clock, store = _Clock(), _Store(away=12)
    with caplog.at_level("INFO"):
        assert retry(store.write, clock, random_=lambda: 1.0) == 12
    assert store.written == 1
    assert clock.pauses == [pause_s(attempt, lambda: 1.0) for attempt in range(1, 13)]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "the store is away." in caplog.text


def test_a_pause_is_as_long_as_the_store_asks_for() -> None:
    """The pause is the time in the error, or its own if that is longer; the next one is its own again."""
    clock = _Clock()
    errors = [SinkUnavailableError("x.", retry_after_s=seconds) for seconds in (60.0, 0.0, 0.1)]

    def write() -> None:
        if errors:
            raise errors.pop(0)

    assert retry(write, clock, random_=lambda: 1.0) == 3
    assert clock.pauses == [60.0, 0.4, 0.8]


def test_a_stop_ends_the_wait_and_not_the_write() -> None:
    """Asked to stop while the store is away, it gives up; while the store is there, it finishes."""
    store = _Store(away=5)
    with pytest.raises(StoppedError):
        retry(store.write, _Clock(stop_after=3))
    assert (store.away, store.written) == (2, 0)
    stopped = SignalSafeEvent()
    stopped.set()
    there = _Store(away=0)
    assert retry(there.write, stopped) == 0
    assert there.written == 1


def test_another_error_is_not_waited_out() -> None:
    """What no waiting mends comes out at once."""
    clock = _Clock()

    def refused() -> None:
        raise ConfigError("--bucket", "x", "make it")

    with pytest.raises(ConfigError):
        retry(refused, clock)
    assert clock.pauses == []
