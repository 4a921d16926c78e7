"""`tallystream lag collect`: read every group's lag from the broker at a fixed interval and write it to the store."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.lease import GROUP as LEASE
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shutdown import stop_on_signals
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import open_reader, open_store
from tallystream_dashboards.lag.collector.collector import Collector, next_round
from tallystream_dashboards.lag.collector.downsampling import Downsampler
from tallystream_dashboards.lag.collector.http_api import Served, serve
from tallystream_dashboards.lag.collector.kafka_admin import OffsetFetcher, StoppedError
from tallystream_dashboards.lag.collector.record_timestamps import Prober
from tallystream_dashboards.lag.collector.settings import CollectSettings, Patterns
from tallystream_dashboards.lag.collector.spark_offsets import Ledgers
from tallystream_dashboards.lag.collector.tracker import LagTracker

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.shutdown import StopRequest
    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_aggregator.sinks.stores import Store

__all__ = ["CollectSettings", "run"]

log = logging.getLogger(__name__)

REQUEST_S = 5.0
"""The timeout of one request to the broker, in seconds."""


def watched(settings: CollectSettings) -> Patterns:
    """Return the patterns of the groups to watch, without the aggregators' lease, which reads no records."""
    return Patterns(settings.include, (*settings.exclude, f"*{LEASE}"))


def run(settings: CollectSettings) -> int:
    """Collect until SIGTERM or Ctrl-C, then return 0; must be called in the main thread.

    Delivery: at least once. While the store is unavailable, the newest 200,000 points are held and written when it is
    available again. A round in which the broker is unavailable leaves a gap in the history.

    Raises:
        ConfigError: a Kafka option or the store's settings can't work.
    """
    with ExitStack() as stack:
        admin = _admin(settings)
        sink = open_store(settings.store)
        stack.callback(_close, sink)
        reader = open_reader(settings.store)
        stack.callback(reader.close)
        stop = stack.enter_context(stop_on_signals())
        kafka = _kafka(settings)
        ledgers = Ledgers(Topics(settings.topic_prefix).ledger, kafka, prefix=settings.topic_prefix)
        stack.callback(ledgers.close)
        asker = OffsetFetcher(admin, timeout=REQUEST_S, stopping=stop.is_set)
        prober = Prober(kafka, seconds=settings.interval / 2, stopping=stop.is_set)
        watch = LagTracker(
            asker,
            watched(settings),
            settings.rules,
            clock=time.time,
            ledger=ledgers.offsets,
            probe=prober.probe if settings.record_timestamps else None,
        )
        # Without permission to read the store, the history can't be loaded or downsampled.
        full_ms = round(settings.full_hours * 3_600_000) if _remember(watch, reader) else 0
        thinner = Downsampler(sink, reader, full_ms=full_ms, clock=lambda: round(time.time() * 1000))
        served = stack.enter_context(serve(settings))
        collector = Collector(watch.sample, sink, publish=served.publish, tidy=thinner.thin, rules=settings.rules)
        _read_ledger(ledgers, stop)
        _loop(collector, settings, stop, served)
        log.info("stopped: %s", collector.summary())
    return 0


def _read_ledger(ledgers: Ledgers, stop: StopRequest) -> None:
    """Wait up to `REQUEST_S` for the first read of the ledger: without it, a group's offset may seem to go back."""
    deadline = time.monotonic() + REQUEST_S
    while ledgers.offsets() is None and time.monotonic() < deadline and not stop.wait(0.05):
        pass


def _remember(watch: LagTracker, reader: PointReader) -> bool:
    try:
        watch.remember(reader)
    except SinkUnavailableError as error:
        log.warning("the store is unavailable, so the history begins now: %s", error)
    except ConfigError as error:
        log.warning("the store may not be read, so the history begins now and is not thinned out: %s", error)
        return False
    return True


def _close(sink: Store) -> None:
    try:
        sink.close()
    except SinkUnavailableError as error:
        log.warning("the store was unavailable at the end: %s", error)


def _loop(collector: Collector, settings: CollectSettings, stop: StopRequest, served: Served) -> None:
    ready, due = settings.ready_file, time.monotonic()
    while not stop.is_set():
        try:
            through = collector.round()
        except StoppedError:
            return
        served.finished(through=through)
        if through and ready is not None:
            ready.touch()
            ready = None
        due, missed = next_round(due, settings.interval, time.monotonic())
        collector.rounds_skipped += missed
        stop.wait(due - time.monotonic())


def _kafka(settings: CollectSettings) -> dict[str, str]:
    return {**settings.options, "bootstrap.servers": settings.bootstrap_servers}


def _admin(settings: CollectSettings) -> AdminClient:
    return clients.admin(
        {"client.id": "tallystream-lag", "socket.connection.setup.timeout.ms": 5000, **_kafka(settings)}
    )
