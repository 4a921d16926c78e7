"""`tallystream replay`: writes the points of a past period to a store again, from the rows of `metrics-agg`.

The points are the same as those that were shipped. Nothing is written to Kafka.
docs/decisions/0007-replay-ships-again.md explains why nothing is computed again.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from confluent_kafka.admin import ConfigResource

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.shipping.retries import StoppedError, retry
from tallystream_aggregator.shipping.subscription import Record
from tallystream_aggregator.sinks.stores import open_sink
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.stream.reading import committed_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream.process.signals import SignalSafeEvent
    from tallystream_aggregator.sinks.base import Point, Sink
    from tallystream_aggregator.sinks.stores import StoreSettings

CHUNK = 5_000
"""Points in one write."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Settings of `tallystream replay`: the period from `from_ms` to `to_ms` (exclusive), in epoch ms.

    The time of a sum is the table's clock, as in the store.
    """

    cluster: clients.Cluster
    store: StoreSettings
    from_ms: int
    to_ms: int

    def __post_init__(self) -> None:
        if self.store.kind == "prometheus":
            raise ConfigError("--store", self.store.spec, "it has only the newest sums: replay to another store")
        if self.from_ms >= self.to_ms:
            raise ConfigError("--to", self.to_ms, "give a time after --from")


def run(settings: ReplaySettings, stop: SignalSafeEvent, say: Callable[[str], object]) -> int:
    """Write the points whose time is in the period, in order, and return their number.

    Delivery: at least once. A point that exists is overwritten with the same values. Waits while the store is
    unavailable.

    Raises:
        ConfigError: there is no sum of the period, the sums of that time are compacted, or the store rejects its
            settings.
        StoppedError: `stop` was set. The points that were written stay.
        TallystreamError: the broker can't be reached.
    """
    topics, kafka = Topics(settings.cluster.topic_prefix), settings.cluster.options
    check_login(kafka)
    with closing(open_sink(settings.store)) as sink, clients.broker_errors(kafka["bootstrap.servers"]):
        _require_uncompacted(topics, kafka, settings.from_ms)
        period = (one for one in _points(topics, kafka, stop) if settings.from_ms <= one.ts_ms < settings.to_ms)
        written = _write(period, sink, stop, say)
        if not written:
            remedy = f"{topics.agg} has no sum of this time or later, before --to: widen the period"
            raise ConfigError("--from", settings.from_ms, remedy)
        return written


def _write(period: Iterator[Point], sink: Sink, stop: SignalSafeEvent, say: Callable[[str], object]) -> int:
    written = 0
    retry(sink.setup, stop.wait)
    while points := list(islice(period, CHUNK)):
        retry(partial(sink.write, points), stop.wait)
        written += len(points)
        say(f"{written:,} points")
    return written


def _points(topics: Topics, kafka: Mapping[str, str], stop: SignalSafeEvent) -> Iterator[Point]:
    mapper = PointMapper(topics)
    broker = KafkaBroker(kafka, Selection(topics.agg), clients.READING)
    for offset, _, key, value in committed_records(broker, Place(topics.agg, 0)):
        if stop.is_set():  # also while the sums before the period are read
            raise StoppedError
        yield from mapper.points([Record(topics.agg, offset, key, value)])


def _require_uncompacted(topics: Topics, kafka: Mapping[str, str], from_ms: int) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topics.agg)
    admin = clients.admin(kafka)  # must outlive the future
    config = admin.describe_configs([resource], request_timeout=clients.TIMEOUT_S)[resource].result()
    kept_ms = int(config["min.compaction.lag.ms"].value)
    if from_ms < time.time() * 1000 - kept_ms:
        raise ConfigError(
            "--from",
            from_ms,
            f"{topics.agg} keeps every sum for {kept_ms / 86_400_000:g} days (min.compaction.lag.ms), then only the "
            "newest of each metric: give a later time",
        )
