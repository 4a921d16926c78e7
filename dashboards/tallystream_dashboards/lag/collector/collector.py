"""`tallystream lag collect`: read every group's lag from the broker at a fixed interval and write it to the store."""

from __future__ import annotations

import logging
import math
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.shutdown import stop_on_signals
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import open_store
from tallystream_dashboards.formatting import counted
from tallystream_dashboards.lag.collector.http_api import serve
from tallystream_dashboards.lag.collector.kafka_admin import BrokerUnavailableError, OffsetFetcher, StoppedError
from tallystream_dashboards.lag.collector.recorder import Downsampler, Recorder, WriteBuffer, delete
from tallystream_dashboards.lag.collector.records import Records
from tallystream_dashboards.lag.collector.settings import CollectSettings
from tallystream_dashboards.lag.collector.tracker import LagTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tallystream.process.signals import SignalSafeEvent
    from tallystream_aggregator.http_server import Response
    from tallystream_aggregator.sinks.base import Point, PointReader, Store
    from tallystream_dashboards.lag.collector.http_api import LagApi
    from tallystream_dashboards.lag.collector.tracker import Round

__all__ = ["CollectSettings", "collect", "run"]

log = logging.getLogger(__name__)

REQUEST_S = 5.0
"""The timeout of one request to the broker, in seconds."""


def run(
    settings: CollectSettings,
    routes: Mapping[str, Callable[[str], Response]],
    compare: Callable[[PointReader, int], Iterable[Point]],
) -> int:
    """Collect until SIGTERM or Ctrl-C, then return 0; must be called in the main thread. See `collect`."""
    with stop_on_signals() as stop:
        collect(settings, routes, compare, stop)
    return 0


def collect(
    settings: CollectSettings,
    routes: Mapping[str, Callable[[str], Response]],
    compare: Callable[[PointReader, int], Iterable[Point]],
    stop: SignalSafeEvent,
) -> None:
    """Collect until `stop` is set.

    `routes` are served beside `/metrics`: paths, each with a function from the query string to the answer. `compare`
    reads what became of the records of each consumer, at a time in epoch ms.

    Delivery: at least once. While the store is unavailable, the newest 200,000 points are kept and written when it is
    available again. A round in which the broker is unavailable leaves a gap in the history.

    Raises:
        ConfigError: a Kafka option or the store's settings can't work.
    """
    kafka = {**settings.options, "bootstrap.servers": settings.bootstrap_servers}
    with ExitStack() as stack:
        options = {"client.id": "tallystream-lag", "socket.connection.setup.timeout.ms": 5000, **kafka}
        sink = open_store(settings.store, lag=True)
        stack.callback(_close, sink)
        reader = open_store(settings.store)
        stack.callback(reader.close)
        api = stack.enter_context(serve(settings, routes))
        admin = partial(clients.admin, options)
        tracker = LagTracker(
            OffsetFetcher(admin, timeout=REQUEST_S, stopping=stop.is_set, answered=api.continues),
            settings.patterns,
            settings.rules,
            clock=time.time,
            assigned_only=settings.assigned_only,
        )
        # Without permission to read the store, the history can't be loaded or downsampled, and nothing is compared.
        may_read = _load(tracker, reader)
        full_ms = round(settings.full_hours * 3_600_000) if may_read else 0
        downsampler = Downsampler(sink, reader, full_ms=full_ms, clock=lambda: round(time.time() * 1000))
        records = Records(lambda: open_store(settings.store), compare, time.time)

        def fetch() -> Round:
            found = tracker.round()
            return replace(found, records=records.at(found.ts_ms))

        def begin() -> None:
            if settings.ready_file is not None:
                settings.ready_file.touch()
            if may_read:
                records.start(stop)

        collector = Collector(fetch, sink, publish=api.publish, after_write=downsampler.run)
        _loop(collector, settings.interval, stop, api, begin)
        if records.error is not None:
            raise records.error


def next_round(first: float, interval: float, now: float) -> float:
    """Return when the next round is due. Those that were due during the round that has just ended are skipped.

    Rounds are due at `first`, `first` + `interval`, … (seconds of a monotonic clock).
    """
    return first + max(1, math.ceil((now - first) / interval)) * interval


class Collector:
    """Run rounds. An outage of the broker or the store is logged when it begins and when it ends.

    Args:
        fetch: returns the results of one round; raises BrokerUnavailableError.
        sink: the points are written to it.
        publish: called with the results of each round.
        after_write: called each time the points have been written; raises SinkUnavailableError.
    """

    def __init__(
        self,
        fetch: Callable[[], Round],
        sink: Store,
        *,
        publish: Callable[[Round], None],
        after_write: Callable[[], None],
    ) -> None:
        self._fetch = fetch
        self._sink = sink
        self._publish = publish
        self._after_write = after_write
        self._recorder = Recorder()
        self._replaced: list[tuple[int, int]] = []
        self._set_up = False
        self._buffer = WriteBuffer()
        self._broker = _Outages("the broker")
        self._store = _Outages("the store")
        self._problems: tuple[str, ...] = ()

    def round(self) -> bool:
        """Read the lag and write the points once; return whether both succeeded.

        Raises:
            StoppedError: a stop was requested meanwhile.
            ConfigError: the store's settings can't work.
        """
        read = self._read()
        return self._write() and read

    def _read(self) -> bool:
        try:
            result = self._fetch()
        except BrokerUnavailableError as error:
            self._broker.failed(error)
            return False
        self._broker.answered()
        if result.problems != self._problems:
            self._problems = result.problems
            if result.problems:
                log.warning("the broker did not answer everything; not read: %s", "; ".join(result.problems))
            else:
                log.warning("all groups are read again")
        if result.ts_ms < result.before_ms:
            self._go_back(result)
        self._buffer.add(self._recorder.points(result))
        self._publish(result)
        return True

    def _go_back(self, result: Round) -> None:
        """Delete what is stored of the time from the round on, which comes again, before the round is written."""
        back_s = (result.before_ms - result.ts_ms) / 1000
        log.warning(
            "the clock was set back by %.1f s or more: the lag of this time is deleted and collected again", back_s
        )
        self._recorder = Recorder()
        self._buffer.drop_from(result.ts_ms)
        self._replaced.append((result.ts_ms, result.before_ms + 1))

    def _write(self) -> bool:
        try:
            if not self._set_up:
                self._sink.setup()
                self._set_up = True
            delete(self._sink, self._replaced)
            self._replaced.clear()
            self._buffer.write_to(self._sink)
            self._after_write()
        except SinkUnavailableError as error:
            self._store.failed(error)
            return False
        self._store.answered()
        if self._buffer.dropped:
            log.warning("the store was unavailable for too long: %d points were dropped", self._buffer.dropped)
            self._buffer.dropped = 0
        return True


class _Outages:
    """Logs when something becomes unavailable, and when it is available again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._rounds = 0

    def failed(self, error: Exception) -> None:
        if not self._rounds:
            log.warning("%s is unavailable; trying again every round: %s", self._what, error)
        self._rounds += 1

    def answered(self) -> None:
        if self._rounds:
            log.warning("%s is available again after %s", self._what, counted(self._rounds, "round"))
            self._rounds = 0


def _load(tracker: LagTracker, reader: PointReader) -> bool:
    """Load the history from the store; return whether the store may be read."""
    try:
        tracker.load(reader)
    except SinkUnavailableError as error:
        log.warning("the store is unavailable, so the history begins now: %s", error)
    except ConfigError as error:
        log.warning("the store may not be read, so the history begins now and is not downsampled: %s", error)
        return False
    return True


def _loop(
    collector: Collector, interval: float, stop: SignalSafeEvent, api: LagApi, begin: Callable[[], None] | None
) -> None:
    """Run rounds until a stop. `begin` is called after the first one that succeeded."""
    due = time.monotonic()
    while not stop.is_set():
        try:
            succeeded = collector.round()
        except StoppedError:
            return
        api.finished(succeeded=succeeded)
        if succeeded and begin is not None:
            begin()
            begin = None
        due = next_round(due, interval, time.monotonic())
        stop.wait(due - time.monotonic())


def _close(sink: Store) -> None:
    try:
        sink.close()
    except SinkUnavailableError as error:
        log.warning("the store was unavailable at the end: %s", error)
