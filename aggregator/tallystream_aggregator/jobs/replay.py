"""`tallystream replay`: writes the points of a past period to a store again, from the rows of `metrics-agg`.

The points are the same as those that were shipped. Nothing is written to Kafka.
docs/decisions/0007-replay-ships-again.md explains why nothing is computed again.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from confluent_kafka.admin import ConfigResource

from tallystream.errors import ConfigError
from tallystream_aggregator import sums
from tallystream_aggregator.kafka import clients, ledger
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.ledger import QUERY
from tallystream_aggregator.kafka.reader import read_topic
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.shipping.shipper import StoppedError, retry
from tallystream_aggregator.sinks.stores import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tallystream.signals import SignalSafeEvent
    from tallystream_aggregator.kafka.ledger import LedgerRow
    from tallystream_aggregator.sinks.base import Point, Sink
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_aggregator.sums import Sum

log = logging.getLogger(__name__)

Writer = tuple[int, int]
"""(epoch, batch)"""


class Period(NamedTuple):
    """A range of whole batches: the first, the last, and how many of them are in the ledger."""

    first: Writer
    last: Writer
    batches: int


def period(rows: Iterable[LedgerRow], from_ms: int, to_ms: int) -> Period:
    """Return the batches that were processed from `from_ms` to `to_ms` (exclusive), in epoch ms.

    Raises:
        ConfigError: the ledger has none.
    """
    found = sorted(
        {
            (row.epoch, row.batch)
            for row in rows
            if row.query == QUERY and row.kind == "batch" and from_ms <= row.ts < to_ms
        }
    )
    if not found:
        raise ConfigError("--from", from_ms, "the ledger has no batch from then on and before --to: widen the period")
    return Period(found[0], found[-1], len(found))


def chosen(rows: Iterable[Sum], wanted: Period, bound: int) -> Iterator[Sum]:
    """Yield the rows of `metrics-agg` that the active writer wrote in the period. `rows` must be in offset order.

    The period includes batches that read no record, and so have no row in the ledger: they publish silence. A row is
    from a replaced writer if an earlier row has a higher epoch, and from no aggregator if its epoch is above `bound`,
    the highest of the ledger. Such rows were not shipped either.
    """
    highest = 0
    for row in rows:
        if not highest <= row.epoch <= bound:
            continue
        highest = row.epoch
        if wanted.first <= (row.epoch, row.batch) <= wanted.last:
            yield row


CHUNK = 5_000
"""Points in one write."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Settings of `tallystream replay`: the period from `from_ms` to `to_ms` (exclusive), in epoch ms."""

    bootstrap_servers: str
    store: StoreSettings
    from_ms: int
    to_ms: int
    topic_prefix: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.store.kind == "prometheus":
            raise ConfigError("--store", self.store.spec, "it has only the newest sums: replay to another store")
        if self.from_ms >= self.to_ms:
            raise ConfigError("--to", self.to_ms, "give a time after --from")


class Replayed(NamedTuple):
    """The number of points that were written, and their batches."""

    period: Period
    points: int


def run(settings: ReplaySettings, stop: SignalSafeEvent, say: Callable[[str], object]) -> Replayed:
    """Write the period's points in order, and return the period and the number of points.

    Delivery: at least once. A point that exists is overwritten with the same values. Waits while the store is
    unavailable.

    Raises:
        ConfigError: the ledger has no batch in the period, the sums of that time are compacted, or the store rejects
            its settings.
        StoppedError: `stop` was set. The points that were written stay.
        TallystreamError: the broker can't be reached.
    """
    topics = Topics(settings.topic_prefix)
    kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    check_login(kafka)
    with closing(open_sink(settings.store)) as sink, clients.broker_errors(settings.bootstrap_servers):
        rows = ledger.read_rows(topics.ledger, kafka, last=2**62)
        wanted = period(rows, settings.from_ms, settings.to_ms)
        highest = ledger.highest_epoch(rows) or 0
        _require_uncompacted(topics, kafka, settings.from_ms)
        say(f"{wanted.batches} batches, from {wanted.first} to {wanted.last} (epoch, batch)")
        return Replayed(wanted, _write(chosen(_sums(topics, kafka), wanted, highest), sink, stop, say))


def _write(rows: Iterator[sums.Sum], sink: Sink, stop: SignalSafeEvent, say: Callable[[str], object]) -> int:
    written = 0
    retry(sink.setup, stop)
    while points := [point(row) for row in islice(rows, CHUNK)]:
        if stop.is_set():
            raise StoppedError
        retry(partial(_write_once, sink, points), stop)
        written += len(points)
        say(f"{written:,} points")
    return written


def _write_once(sink: Sink, points: Sequence[Point]) -> None:
    sink.write(points)
    sink.flush()


def _sums(topics: Topics, kafka: Mapping[str, str]) -> Iterator[sums.Sum]:
    for record in read_topic(topics.agg, kafka):
        try:
            yield sums.decode(record.value or b"")
        except msgspec.DecodeError:
            log.warning("offset %d of %s is not a sum; it is skipped", record.offset, topics.agg)


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
