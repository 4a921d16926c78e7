"""Which rows of `metrics-agg` a replay reads, and when it stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tallystream.process.signals import SignalSafeEvent
from tallystream_aggregator import sums
from tallystream_aggregator.jobs import replay
from tallystream_aggregator.jobs.replay import ReplaySettings
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.shipping.retries import StoppedError
from tallystream_aggregator.sinks.base import Rejections
from tallystream_aggregator.sinks.stores import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tallystream_aggregator.sinks.base import Point
    from tallystream_aggregator.stream.broker import RawRecord


class Store:
    """A store that keeps the points in memory."""

    def __init__(self) -> None:
        self.refusals = Rejections("Test")
        self.counts: list[object] = []

    def setup(self) -> None:
        """Do nothing."""

    def write(self, points: Sequence[Point]) -> None:
        """Keep the counts."""
        self.counts += [point.fields["count"] for point in points]

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _replay(monkeypatch: pytest.MonkeyPatch, records: Iterator[RawRecord], stop: SignalSafeEvent) -> tuple[int, Store]:
    """Replay the times from 2 to 4 (exclusive) of these records."""
    store = Store()
    monkeypatch.setattr(replay, "check_login", lambda _kafka: None)
    monkeypatch.setattr(replay, "_require_uncompacted", lambda *_: None)
    monkeypatch.setattr(replay, "open_sink", lambda _settings: store)
    monkeypatch.setattr(replay, "KafkaBroker", lambda *_: None)
    monkeypatch.setattr(replay, "committed_records", lambda *_: records)
    settings = ReplaySettings(Cluster("b:9092"), StoreSettings.parse("local:x", env={}), 2, 4)
    said: list[Any] = []
    return replay.run(settings, stop, said.append), store


def _sum(ts: int) -> RawRecord:
    return ts, ts, b"k", sums.Sum(app="a", name="n", type="counter", count=ts, ts=ts).value()


def test_the_sums_of_the_period_are_written(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What is no sum is skipped with a warning. A deletion is skipped without one."""
    records = [_sum(1), _sum(2), (7, 0, b"k", None), (8, 0, b"k", b"{"), _sum(3), _sum(4)]
    number, store = _replay(monkeypatch, iter(records), SignalSafeEvent())
    assert (number, store.counts) == (2, [2, 3])
    assert ["metrics-agg, offset 8 can't be read" in record.getMessage() for record in caplog.records] == [True]


def test_a_stop_ends_the_search_for_the_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic has the sums of at least seven days. Those before the period would be read to the end."""
    stop = SignalSafeEvent()
    read = []

    def records() -> Iterator[RawRecord]:
        for offset in range(1000):
            if offset == 5:
                stop.set()
            read.append(offset)
            yield _sum(0)

    with pytest.raises(StoppedError):
        _replay(monkeypatch, records(), stop)
    assert len(read) == 6
