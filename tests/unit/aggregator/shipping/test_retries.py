"""Retries while a store is unavailable."""

from __future__ import annotations

import pytest

from tallystream.errors import ConfigError
from tallystream.process.signals import SignalSafeEvent
from tallystream_aggregator.shipping.retries import MAX_PAUSE_S, MIN_PAUSE_S, StoppedError, pause_s, retry
from tallystream_aggregator.sinks.base import SinkUnavailableError


class Stop(SignalSafeEvent):
    """A stop request that keeps the requested pauses without waiting, and is set after `after` of them."""

    def __init__(self, after: int = 1_000_000) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._after = after

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it is set, without waiting."""
        assert timeout is not None
        self.pauses.append(timeout)
        if len(self.pauses) == self._after:
            self.set()
        return self.is_set()


class Store:
    """A store that is unavailable for the first `failures` writes."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.written = 0

    def write(self) -> None:
        """Write, or raise that the store is unavailable."""
        if self.failures:
            self.failures -= 1
            raise SinkUnavailableError("the store is unavailable.")
        self.written += 1


def test_a_pause_is_as_long_as_the_store_requests() -> None:
    """The pause is the time in the error if that is longer than its own. The next one is its own again."""
    stop = Stop()
    errors = [SinkUnavailableError("x.", retry_after_s=seconds) for seconds in (60.0, 0.0)]

    def write() -> None:
        if errors:
            raise errors.pop(0)

    retry(write, stop.wait)
    assert stop.pauses[0] == 60.0
    assert 0 < stop.pauses[1] < 60.0


def test_pauses_double_up_to_a_limit() -> None:
    """Each pause is random, in the upper half of its range."""
    for attempt, longest in ((1, MIN_PAUSE_S), (2, 0.4), (3, 0.8), (4, 1.6), (10**9, MAX_PAUSE_S)):
        assert longest / 2 <= pause_s(attempt) <= longest
    assert len({pause_s(1) for _ in range(10)}) > 1


def test_a_write_is_retried_until_the_store_is_available(caplog: pytest.LogCaptureFixture) -> None:
    """The pauses grow. The begin and the end of the outage are logged once."""
    stop, store = Stop(), Store(failures=12)
    with caplog.at_level("INFO"):
        retry(store.write, stop.wait)
    assert store.written == 1
    assert len(stop.pauses) == 12
    assert stop.pauses[-1] > stop.pauses[0]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "the store is unavailable." in caplog.text


def test_a_stop_ends_the_retries_but_not_a_write() -> None:
    """While the store is unavailable, `retry` gives up. A store that is available is written."""
    store = Store(failures=5)
    with pytest.raises(StoppedError):
        retry(store.write, Stop(after=3).wait)
    assert (store.failures, store.written) == (2, 0)
    stopped = SignalSafeEvent()
    stopped.set()
    available = Store(failures=0)
    retry(available.write, stopped.wait)
    assert available.written == 1


def test_another_error_is_not_retried() -> None:
    """An error that does not go away by waiting is raised at once."""
    stop = Stop()

    def write() -> None:
        raise ConfigError("--bucket", "x", "create it")

    with pytest.raises(ConfigError):
        retry(write, stop.wait)
    assert stop.pauses == []
