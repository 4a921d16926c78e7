"""`tallystream lag collect`: ask the broker for every group's lag at a fixed interval and keep it in the store."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tallystream.aggregator.lease import GROUP as LEASE
from tallystream.aggregator.sinks.base import SinkUnavailableError
from tallystream.aggregator.sinks.stores import StoreSettings, open_sink
from tallystream.dashboards.lag._ask import Asker, StoppedError
from tallystream.dashboards.lag._collector import Collector
from tallystream.dashboards.lag._patterns import Patterns
from tallystream.dashboards.lag._schedule import next_round
from tallystream.dashboards.lag._stop import stop_on_signals
from tallystream.reporter.errors import ConfigError

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["CollectSettings", "run"]

log = logging.getLogger(__name__)

MIN_INTERVAL, MAX_INTERVAL = 1.0, 60.0
REQUEST_S = 5.0
"""How long one request to the broker may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSettings:
    """What `tallystream lag collect` needs.

    Args:
        store: where the points go.
        bootstrap_servers: the brokers, `host:port,…`.
        interval: seconds between rounds, 1 to 60.
        include: shell patterns of the group names to watch.
        exclude: shell patterns of the group names to leave out; an exclusion beats an inclusion.
        options: librdkafka options, passed through; they may hold secrets and are never shown.
        ready_file: a file that is made as soon as a round has gone through to the store.

    Raises:
        ConfigError: the interval is out of its bounds, or `include` is empty.
    """

    store: StoreSettings
    bootstrap_servers: str = "localhost:9092"
    interval: float = 2.0
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    ready_file: Path | None = None

    def __post_init__(self) -> None:
        if not MIN_INTERVAL <= self.interval <= MAX_INTERVAL:
            raise ConfigError("--interval", self.interval, "give seconds from 1 to 60")
        if not self.include:
            raise ConfigError("--include", self.include, 'give at least one pattern, such as "*"')


def watched(settings: CollectSettings) -> Patterns:
    """Return the groups to watch: never the aggregators' lease, which reads nothing and so has no lag."""
    return Patterns(settings.include, (*settings.exclude, f"*{LEASE}"))


def run(settings: CollectSettings) -> int:
    """Collect until SIGTERM or Ctrl-C, then return 0; must be called in the main thread.

    Delivery: at least once; while the store is away, the newest 200,000 points are held and written when it is back. A
    round in which the broker is away leaves a gap: nothing is made up for it.

    Raises:
        ConfigError: a Kafka option or the store's settings can't work.
    """
    admin = _admin(settings)
    sink = open_sink(settings.store)
    try:
        with stop_on_signals() as stop:
            asker = Asker(admin, timeout=REQUEST_S, stopping=stop.is_set)
            collector = Collector(asker.ask, sink, watched(settings), clock=time.time)
            _loop(collector, settings, stop)
            log.info("stopped: %s", collector.summary())
    finally:
        try:
            sink.close()
        except SinkUnavailableError as error:
            log.warning("the store was away at the end: %s", error)
    return 0


def _loop(collector: Collector, settings: CollectSettings, stop: threading.Event) -> None:
    ready, due = settings.ready_file, time.monotonic()
    while not stop.is_set():
        try:
            through = collector.round()
        except StoppedError:
            return
        if through and ready is not None:
            ready.touch()
            ready = None
        due, missed = next_round(due, settings.interval, time.monotonic())
        collector.rounds_skipped += missed
        stop.wait(due - time.monotonic())


def _admin(settings: CollectSettings) -> AdminClient:
    # Without log_level 0 librdkafka writes a line to stderr for every attempt to reach a broker that is away.
    options: dict[str, str | int | float | bool] = {
        "client.id": "tallystream-lag",
        "log_level": 0,
        "socket.connection.setup.timeout.ms": 5000,
    }
    try:
        return AdminClient(options | dict(settings.options) | {"bootstrap.servers": settings.bootstrap_servers})
    except KafkaException as error:
        reason = error.args[0].str()
        raise ConfigError(
            "--kafka", sorted(settings.options), f"mend the option that librdkafka names: {reason}"
        ) from error
