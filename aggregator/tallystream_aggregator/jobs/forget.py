"""`tallystream forget`: removes lives of an instance, or a metric, from the sums, by records on the topic `metrics`.

The rows on `metrics-table` say which lives have what is removed, and so which partitions need a record.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream.errors import TallystreamError
from tallystream.record import identity
from tallystream_aggregator.instances import state_of
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.producer import ProducerRecord, RecordProducer
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.stream.positions import by_place, summed, visible_row
from tallystream_aggregator.stream.restore import rows_of
from tallystream_aggregator.table.records.decode import shard_of
from tallystream_aggregator.table.restore import read_row
from tallystream_aggregator.table.rows import ForgottenRow, LifeRow, ShardRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tallystream_aggregator.instances import InstanceState
    from tallystream_aggregator.shutdown import StopRequest
    from tallystream_aggregator.stream.broker import Broker, Positions
    from tallystream_aggregator.stream.positions import PositionsRow
    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.records.decode import Forget
    from tallystream_aggregator.table.restore import TableRow

INSTANCE = "tallystream-aggregator"
"""An instance ID without metrics, as is this ID with a number behind it: it stands for a shard (`_instances`)."""

EVERY_S = 0.5
"""Seconds between two looks at what is published."""


@dataclass(frozen=True, slots=True)
class ForgetSettings:
    """Settings of `tallystream forget`. `instance` is None when a metric is removed.

    `timeout` is the time in seconds within which the aggregator must apply the records.
    """

    cluster: clients.Cluster
    forget: Forget
    instance: str | None = None
    timeout: float = 60.0


class NoMatchError(TallystreamError):
    """The table has nothing of what a request removes."""


class RemovedLife(NamedTuple):
    """A life with what is removed, and its number of metrics. A living life may publish again."""

    app: str
    instance: str
    life: str
    state: InstanceState
    metrics: int


class Plan(NamedTuple):
    """The forget records, the lives that have what they remove, and the metrics whose sums lose something."""

    records: list[ProducerRecord]
    lives: list[RemovedLife]
    sums: list[MetricId]


def read_plan(settings: ForgetSettings) -> Plan:
    """Read the table, and return what would be removed. Publishes nothing.

    Raises:
        NoMatchError: nothing in the table matches.
        TallystreamError: there is no table, or the broker can't be reached.
    """
    check_login(settings.cluster.options)
    topics = Topics(settings.cluster.topic_prefix)
    return plan(_broker(settings.cluster, topics), topics.table, settings.forget, settings.instance)


def plan(broker: Broker, table: str, forget: Forget, instance: str | None) -> Plan:
    """Return what a forget record removes from the table on the topic `table`.

    Raises:
        NoMatchError: nothing matches.
        TallystreamError: there is no table.
    """
    first = _positions(broker, table, 0)
    published = [first, *(_positions(broker, table, shard) for shard in range(1, first.of))]
    lives: dict[tuple[str, str, str], tuple[LifeRow, int]] = {}
    metrics: set[MetricId] = set()
    newest: LifeRow | None = None
    clocks: dict[str, int] = {}
    for row in _rows(broker, table, first.of):
        if isinstance(row, ShardRow):
            clocks |= row.clocks
        if isinstance(row, ForgottenRow) and instance is None:
            forgotten = (row.app, *identity(row.name, row.held.kind, row.tags))
            metrics.update({forgotten} if forget.has_metric(forgotten) else ())
        if not isinstance(row, LifeRow):
            continue
        known = [(row.app, *one.identity) for one in row.metrics]
        if instance is None:
            removed = [metric for metric in known if forget.has_metric(metric)]
        else:
            removed = known if row.instance == instance and forget.has_life(row.app, row.life) else []
        if removed:
            metrics.update(removed)
            life = row.app, row.instance, row.life
            before = lives[life][1] if life in lives else 0  # of other parts
            lives[life] = row, before + len(removed)
            if newest is None or row.last_seen_ms > newest.last_seen_ms:
                newest = row
            row.metrics = []  # they are as large as the table
    if not metrics:
        what = f"metric {forget.metric}: nothing" if instance is None else f"instance {instance}: no life"
        raise NoMatchError(f"{what} in the table matches; check the name and what narrows it.")
    if instance is None or newest is None:
        records = _of_each_shard(published, forget)
    else:
        records = [ProducerRecord(newest.topic, instance.encode(), forget.value(), newest.partition)]
    tags = first.sum_tags
    sums = {(app, name, kind, tags.of(kind, own)) for app, name, kind, own in metrics}
    return Plan(
        records,
        [RemovedLife(*life, _state(row, clocks), number) for life, (row, number) in sorted(lives.items())],
        sorted(sums),
    )


def _state(row: LifeRow, clocks: dict[str, int]) -> InstanceState:
    """Return the state of a life by the time of its partition. Its row may be from before it fell silent."""
    is_living = row.living and clocks[f"{row.topic}:{row.partition}"] < row.last_seen_ms + 3 * row.every_ms
    return state_of(is_living=is_living, is_final=row.final)


def _positions(broker: Broker, table: str, shard: int) -> PositionsRow:
    row = visible_row(broker, Place(table, shard), shard)
    if row is None:
        raise TallystreamError(f"topic {table}: it has no positions of a table; start the aggregator first.")
    return row


def _rows(broker: Broker, table: str, shards: int) -> Iterator[TableRow]:
    """Yield the newest rows of the table."""
    for shard in range(shards):
        for (partition, key), value in rows_of(broker, Place(table, shard)).rows.items():
            yield read_row(partition, key, value)


def _of_each_shard(published: Sequence[PositionsRow], forget: Forget) -> list[ProducerRecord]:
    """Return a record for each shard in each partition: a record is ordered only with others of its partition."""
    places = sorted({place for row in published for place in by_place(row.positions)})
    value = msgspec.structs.replace(forget, shards=len(published)).value()
    keys = _instances(len(published)).values()
    return [ProducerRecord(place.topic, key.encode(), value, place.partition) for place in places for key in keys]


def publish(settings: ForgetSettings, plan: Plan, say: Callable[[str], object], stop: StopRequest) -> bool:
    """Publish the records, and return True when the aggregator has applied them and published the sums.

    Return False when `stop` was set before that. Then all records are published, or none if it was set at the start.

    Delivery: at least once. A record that is appended twice changes nothing the second time.

    Raises:
        TallystreamError: the user may not write a topic, the broker can't be reached, or no aggregator applied the
            records in time. An aggregator that starts later applies those that are published.
    """
    if stop.is_set():
        say("stopped: nothing is published")
        return False
    cluster, topics = settings.cluster, Topics(settings.cluster.topic_prefix)
    broker = _broker(cluster, topics)
    with clients.broker_errors(cluster.bootstrap_servers):
        RecordProducer(cluster.options).deliver(plan.records)
    places = {Place(record.topic, record.partition) for record in plan.records}
    ends = {place: bounds.end for place, bounds in broker.bounds(places).items()}
    one = len(plan.records) == 1
    published = f"{len(plan.records)} record{' is' if one else 's are'} published"
    say(f"{published}; waiting for the aggregator, for {settings.timeout:g} s at most")
    deadline = time.monotonic() + settings.timeout
    while not has_reached(_last_row(broker, topics), ends):
        if stop.wait(EVERY_S):
            say(f"stopped: {published}, and an aggregator that runs or starts applies {'it' if one else 'them'}")
            return False
        if time.monotonic() > deadline:
            raise TallystreamError(
                f"forget: {published}, and no aggregator has applied it within {settings.timeout:g} s; one that runs "
                "or starts does, so it need not be published again."
            )
    say("applied: the sums are published")
    return True


def _broker(cluster: clients.Cluster, topics: Topics) -> KafkaBroker:
    return KafkaBroker(cluster.options, Selection(topics.metrics), clients.READING)


def _last_row(broker: Broker, topics: Topics) -> PositionsRow | None:
    """Return the positions row of the only shard, or of the combiner, None if there is none."""
    first = visible_row(broker, Place(topics.table, 0), 0)
    if first is None or first.of == 1:
        return first
    return visible_row(broker, Place(topics.shards, first.of), first.of)


def has_reached(row: PositionsRow | None, ends: Positions) -> bool:
    """Tell whether the sums of every shard include all records before these offsets.

    `row` is the positions row of the only shard, or of the combiner.
    """
    reached = {} if row is None else summed(row)
    return row is not None and all(reached.get(place, 0) >= end for place, end in ends.items())


def _instances(shards: int) -> dict[int, str]:
    """Return an instance ID for each shard. One of them is `INSTANCE`."""
    found: dict[int, str] = {}
    for number in count():
        instance = f"{INSTANCE}-{number}" if number else INSTANCE
        found.setdefault(shard_of(instance.encode(), shards), instance)
        if len(found) == shards:
            return found
    raise AssertionError
