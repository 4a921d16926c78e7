"""The shipper: retries while the store or the ledger is unavailable, and dead letters of rejected points."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tallystream.errors import ConfigError, TallystreamError
from tallystream.signals import SignalSafeEvent
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.health.internal_metrics import InternalMetrics
from tallystream_aggregator.jobs.ship import highest_epoch
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.shipper import (
    MAX_PAUSE_S,
    MAX_POINT_CHARS,
    MIN_PAUSE_S,
    Shipper,
    StoppedError,
    dead_letter,
    pause_s,
    retry,
)
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.verify.published import refused_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OPENED = LedgerRow(kind="opened", query=ledger.QUERY, epoch=3, ts=1)
FAILURES = [KafkaException(KafkaError(KafkaError._TRANSPORT)), TallystreamError("its end was not reached in time")]


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

    retry(write, stop)
    assert stop.pauses[0] == 60.0
    assert 0 < stop.pauses[1] < 60.0


def test_pauses_double_up_to_a_limit() -> None:
    """Each pause is random, in the upper half of its range."""
    for attempt, longest in ((1, MIN_PAUSE_S), (2, 0.4), (3, 0.8), (4, 1.6), (10**9, MAX_PAUSE_S)):
        assert longest / 2 <= pause_s(attempt) <= longest
    assert len({pause_s(1) for _ in range(10)}) > 1


def test_an_available_store_is_written_once() -> None:
    """There is no pause."""
    stop, store = Stop(), Store(failures=0)
    retry(store.write, stop)
    assert (store.written, stop.pauses) == (1, [])


def test_a_write_is_retried_until_the_store_is_available(caplog: pytest.LogCaptureFixture) -> None:
    """The pauses grow. The begin and the end of the outage are logged once."""
    stop, store = Stop(), Store(failures=12)
    with caplog.at_level("INFO"):
        retry(store.write, stop)
    assert store.written == 1
    assert len(stop.pauses) == 12
    assert stop.pauses[-1] > stop.pauses[0]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "the store is unavailable." in caplog.text


def test_a_stop_ends_the_retries_but_not_a_write() -> None:
    """While the store is unavailable, `retry` gives up. A store that is available is written."""
    store = Store(failures=5)
    with pytest.raises(StoppedError):
        retry(store.write, Stop(after=3))
    assert (store.failures, store.written) == (2, 0)
    stopped = SignalSafeEvent()
    stopped.set()
    available = Store(failures=0)
    retry(available.write, stopped)
    assert available.written == 1


def test_another_error_is_not_retried() -> None:
    """An error that does not go away by waiting is raised at once."""
    stop = Stop()

    def write() -> None:
        raise ConfigError("--bucket", "x", "create it")

    with pytest.raises(ConfigError):
        retry(write, stop)
    assert stop.pauses == []


def test_a_rejected_point_is_counted_once_however_often_the_batch_is_written(tmp_path: Path) -> None:
    """The batch is written again while its dead letter can't be sent."""
    bad = Point("bad", {"app": "a"}, {"count": math.nan}, 1)
    letters: list[list[tuple[Point, str]]] = []

    def send(points: list[tuple[Point, str]]) -> None:
        letters.append(points)
        if len(letters) <= 5:
            raise SinkUnavailableError("metrics-dead is unavailable.")

    store = LocalStore(tmp_path / "store.db", retention_ms=0)
    health = Health("ship", HealthSettings(own_metrics=False))
    mapper: Any = SimpleNamespace(points=lambda _: [bad], unreadable=0, dropped=0)
    rejected: Any = SimpleNamespace(send=send)
    Shipper(store, mapper, rejected, stop=Stop(), health=health).ship([])
    store.close()
    assert [len(points) for points in letters] == [1] * 6
    assert 'tallystream_ship_rejected_total{command="ship"} 1\n' in health.metrics().text


def _reads(*results: Any) -> Callable[..., list[LedgerRow]]:
    """Return a function that reads the ledger with these results in order. An exception is raised."""
    left = list(results)

    def read(*_args: object, **_options: object) -> list[LedgerRow]:
        result = left.pop(0)
        if isinstance(result, Exception):
            raise result
        return list(result)

    return read


def test_an_unreadable_ledger_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The health response names it while the shipper waits."""
    monkeypatch.setattr(ledger, "read_rows", _reads(*FAILURES, [OPENED]))
    seen: list[str | None] = []

    class Status:
        waiting_for: str | None = None

        def __setattr__(self, name: str, value: str | None) -> None:
            seen.append(value)

    health: Any = SimpleNamespace(status=Status())
    assert highest_epoch(Topics(), {}, Stop(after=9), health) == 3
    assert seen == ["the ledger", "the ledger", None]


def test_a_stop_ends_the_wait_for_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is not finished: it runs again at the next start."""
    monkeypatch.setattr(ledger, "read_rows", _reads(*FAILURES))
    health: Any = SimpleNamespace(status=SimpleNamespace(waiting_for=None))
    with pytest.raises(StoppedError):
        highest_epoch(Topics(), {}, Stop(after=1), health)
    assert health.status.waiting_for == "the ledger"


def test_the_gauge_of_an_unavailable_store_ignores_the_ledger() -> None:
    """`tallystream.ship.store_unavailable` is 1 only while the shipper waits for the store."""
    internal_metrics = InternalMetrics("ship")
    health: Any = SimpleNamespace(status=SimpleNamespace(waiting_for=None), internal_metrics=internal_metrics)
    unused: Any = None
    Shipper(unused, unused, unused, stop=unused, health=health)
    found: list[float] = []
    for waiting in (None, "the ledger", "the store"):
        health.status.waiting_for = waiting
        found += [sample.value for family in internal_metrics.families() for sample in family.samples]
    assert found == [0, 0, 1]


def test_a_dead_letter_has_the_point_the_reason_and_the_store() -> None:
    """The point is a text, because JSON has no NaN."""
    point = Point("heat", {"app": "ä"}, {"sum": math.nan, "count": 2**63}, 5)
    key, value = dead_letter(point, "no good", "influxdb:http://h")
    assert key == b"heat"
    assert json.loads(value) == {
        "v": 1,
        "reason": "no good",
        "ts": 5,
        "store": "influxdb:http://h",
        "point": '{"measurement": "heat", "tags": {"app": "ä"}, "fields": {"sum": NaN, "count": 9223372036854775808}}',
    }


def test_verify_ignores_the_dead_letter_of_a_point() -> None:
    """The table accepted its record."""
    _, value = dead_letter(Point("m", {}, {"v": 1}, 5), "r", "s")
    assert refused_record(value) is None


def test_a_dead_letter_has_a_limited_size() -> None:
    """The measurement, the point and the reason are truncated."""
    key, value = dead_letter(Point("m" * 10_000, {"k": "v" * 200_000}, {"v": 1}, 5), "r" * 10_000, "s")
    assert len(key) == 1024
    assert len(json.loads(value)["point"]) == MAX_POINT_CHARS
    assert len(json.loads(value)["reason"]) == 1000
