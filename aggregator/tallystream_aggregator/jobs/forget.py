"""`tallystream forget`: removes lives of an instance, or a metric, from the sums, by records on the topic `metrics`.

The records are first applied to a copy of the table, which is read from `metrics-table`. So a dry run shows what the
aggregator will do with them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.partition_bounds import bounds_of
from tallystream_aggregator.kafka.producer import ProducerRecord, RecordProducer
from tallystream_aggregator.kafka.reader import read_topic
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.kafka import KafkaBroker
from tallystream_aggregator.stream.positions import visible_row
from tallystream_aggregator.table import Record, Table
from tallystream_aggregator.table.combiners import CombinerGroup
from tallystream_aggregator.table.layouts import Layouts, metric_count
from tallystream_aggregator.table.restore.latest_rows import LatestRows
from tallystream_aggregator.table.restore.restore import restore
from tallystream_aggregator.table.shards import instances, shard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tallystream_aggregator.shutdown import StopRequest
    from tallystream_aggregator.stream.positions import PositionsRow
    from tallystream_aggregator.table.decode import Forget
    from tallystream_aggregator.table.outputs import Total
    from tallystream_aggregator.table.state import Life, MetricId, State

EVERY_S = 0.5
"""Seconds between two looks at what is published."""

PROGRESS_EVERY = 100_000

LAST = 2**63 - 1
"""An offset after all records."""


@dataclass(frozen=True, slots=True)
class ForgetSettings:
    """Settings of `tallystream forget`. `instance` is None when a metric is removed.

    `timeout` is the time in seconds within which the aggregator must apply the records.
    """

    bootstrap_servers: str
    forget: Forget
    instance: str | None = None
    topic_prefix: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 60.0


class RemovedLife(NamedTuple):
    """A life that is removed, and its number of metrics. A `living` life may publish again."""

    app: str
    instance: str
    life: str
    living: bool
    metrics: int


class Changed(NamedTuple):
    """A sum before and after the records are applied."""

    before: Total
    after: Total


class Plan(NamedTuple):
    """The forget records and their effect. When a metric is removed, `lives` are the lives that have it."""

    records: list[ProducerRecord]
    lives: list[RemovedLife]
    sums: list[Changed]


def read_plan(settings: ForgetSettings, say: Callable[[str], object]) -> Plan:
    """Read the table, and return what would be removed. Publishes nothing. Needs as much memory as the whole table.

    Raises:
        TallystreamError: nothing in the table matches, there is no table, or the broker can't be reached.
    """
    topics, kafka = _connection(settings)
    with clients.broker_errors(settings.bootstrap_servers):
        states = _states(topics, kafka, say)
    return plan(states, settings.forget, settings.instance)


def _states(topics: Topics, kafka: Mapping[str, str], say: Callable[[str], object]) -> list[State]:
    """Return the states of the shards by their newest rows."""
    latest = LatestRows()
    for number, record in enumerate(read_topic(topics.table, kafka), 1):
        if record.key is not None and not record.key.startswith(b'["positions",'):
            latest.add(record.key, record.value, partition=record.partition)
        if number % PROGRESS_EVERY == 0:
            say(f"{number:,} records of {topics.table} read")
    return restore(latest).states


def plan(states: Sequence[State], forget: Forget, instance: str | None) -> Plan:
    """Return what a forget record removes from the table. `states` has one of each shard; they are changed.

    Raises:
        TallystreamError: nothing matches.
    """
    lives = [life for state in states for known in state.lives.values() for life in known]
    if instance is not None:
        chosen = [
            one
            for one in lives
            if one.instance == instance and forget.has_life(one.app, one.life) and metric_count(one)
        ]
        if not chosen:
            raise TallystreamError(f"instance {instance}: no life in the table matches; forgotten lives have no ID.")
        newest = max(chosen, key=lambda life: life.last_seen_ms)
        records = [_record(newest.partition, instance, forget)]
        metrics = _metrics_of(states, chosen)
    else:
        metrics = {metric for state in states for metric in state.metrics if forget.has_metric(metric)}
        chosen = _having(states, metrics)
        records = _of_each_shard(states, lives, forget)
    tables = [Table(state) for state in states]
    before = _sums(tables, metrics)
    taken = sorted(RemovedLife(one.app, one.instance, one.life, one.living, metric_count(one)) for one in chosen)
    for record in records:
        table = tables[shard_of(record.key, len(tables))]
        clock = table.state.clocks.get(f"{record.topic}:{record.partition}", 0)
        table.apply_record(Record(record.topic, record.partition, LAST, clock, record.key, record.value, clock))
    after = _sums(tables, metrics)
    sums = [Changed(total, after[metric]) for metric, total in sorted(before.items())]
    if instance is None:
        sums = [one for one in sums if _has_changed(one)]
        if not sums and not taken:
            raise TallystreamError(
                f"metric {forget.metric}: nothing in the table matches; check name, app, type, tags."
            )
    return Plan(records, taken, sums)


def _has_changed(one: Changed) -> bool:
    return (one.before.totals, one.before.retired) != (one.after.totals, one.after.retired)


def publish(settings: ForgetSettings, plan: Plan, say: Callable[[str], object], stop: StopRequest) -> bool:
    """Publish the records, and return True when the aggregator has applied them and published the sums.

    Return False when `stop` was set before that. Then all records are published, or none if it was set at the start.

    Delivery: at least once. A record that is appended twice changes nothing the second time.

    Raises:
        ConfigError: the user may not write a topic. Nothing is published.
        TallystreamError: the broker can't be reached, or no aggregator applied the records in time. An aggregator that
            starts later applies them.
    """
    if stop.is_set():
        say("stopped: nothing is published")
        return False
    topics, kafka = _connection(settings)
    with clients.broker_errors(settings.bootstrap_servers):
        _require_writable(kafka, {record.topic for record in plan.records})
        RecordProducer(kafka).deliver(plan.records)
        ends = _ends(kafka, {(record.topic, record.partition) for record in plan.records})
    one = len(plan.records) == 1
    published = f"{len(plan.records)} record{' is' if one else 's are'} published"
    say(f"{published}; waiting for the aggregator, for {settings.timeout:g} s at most")
    with clients.broker_errors(settings.bootstrap_servers):
        reached = _wait(topics, kafka, ends, settings.timeout, stop)
    if reached:
        say("applied: the sums are published")
    elif stop.is_set():
        say(f"stopped: {published}, and an aggregator that runs or starts applies {'it' if one else 'them'}")
    else:
        raise TallystreamError(
            f"forget: {published}, and no aggregator has applied it within {settings.timeout:g} s; one that runs or "
            "starts does, so it need not be published again."
        )
    return reached


def _require_writable(kafka: Mapping[str, str], topics: Iterable[str]) -> None:
    """Check that the user may write all topics, so that not only a part of the records is published."""
    admin = clients.admin(kafka)  # must outlive the futures
    futures = admin.describe_topics(
        TopicCollection(sorted(topics)), include_authorized_operations=True, request_timeout=clients.TIMEOUT_S
    )
    for topic, future in futures.items():
        try:
            may = future.result().authorized_operations
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            may = []
        if may is not None and AclOperation.WRITE not in may:  # None: the broker does not say
            remedy = "this user may not write it, so nothing is published; give the user the permission Write on it"
            raise ConfigError("topic", topic, remedy)


def _wait(
    topics: Topics, kafka: Mapping[str, str], ends: Mapping[tuple[str, int], int], timeout: float, stop: StopRequest
) -> bool:
    """Wait until the sums of all records before these offsets are published. Return whether they are."""
    deadline = time.monotonic() + timeout
    broker = KafkaBroker(kafka, Selection(topics.metrics), clients.READING)
    first = visible_row(broker, Place(topics.table, 0), 0)
    shards = 1 if first is None else first.of
    place = Place(topics.table, 0) if shards == 1 else Place(topics.shards, shards)
    while not has_reached(visible_row(broker, place, place.partition), ends):
        if time.monotonic() > deadline or stop.wait(EVERY_S):
            return False
    return True


def has_reached(row: PositionsRow | None, ends: Mapping[tuple[str, int], int]) -> bool:
    """Tell whether the sums of every shard include all records before these offsets.

    `row` is the positions row of the only shard, or of the combiner.
    """
    if row is None:
        return False
    shards = [row.positions] if row.of == 1 else [row.shards.get(str(shard), {}) for shard in range(row.of)]
    return all(
        positions.get(topic, {}).get(str(partition), 0) >= end
        for positions in shards
        for (topic, partition), end in ends.items()
    )


def _connection(settings: ForgetSettings) -> tuple[Topics, dict[str, str]]:
    kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    check_login(kafka)
    return Topics(settings.topic_prefix), kafka


def _of_each_shard(states: Sequence[State], lives: Iterable[Life], forget: Forget) -> list[ProducerRecord]:
    """Return a record for each shard in each partition: a record is ordered only with others of its partition."""
    partitions = {name for state in states for name in state.offsets} | {life.partition for life in lives}
    whole = msgspec.structs.replace(forget, shards=len(states))
    return [_record(name, key, whole) for name in sorted(partitions) for key in instances(len(states)).values()]


def _record(partition: str, key: str, forget: Forget) -> ProducerRecord:
    topic, _, number = partition.rpartition(":")
    return ProducerRecord(topic, key.encode(), forget.value(), int(number))


def _metrics_of(states: Iterable[State], lives: Iterable[Life]) -> set[MetricId]:
    chosen = {id(life) for life in lives}
    found: set[MetricId] = set()
    for state in states:
        layouts = Layouts(state.metrics)
        mine = (life for known in state.lives.values() for life in known if id(life) in chosen)
        found.update(state.metrics[number] for life in mine for number in layouts.numbers(life))
    return found


def _having(states: Iterable[State], metrics: set[MetricId]) -> list[Life]:
    found: list[Life] = []
    for state in states:
        layouts = Layouts(state.metrics)
        numbers = {number for number, metric in enumerate(state.metrics) if metric in metrics}
        lives = (life for known in state.lives.values() for life in known)
        found += [life for life in lives if not numbers.isdisjoint(layouts.numbers(life))]
    return found


def _sums(tables: Iterable[Table], metrics: set[MetricId]) -> dict[MetricId, Total]:
    group = CombinerGroup()
    for table in tables:
        group.update(table.shard_sums(number for number, metric in enumerate(table.state.metrics) if metric in metrics))
    return {total.metric: total for total in group.changes()}


def _ends(kafka: Mapping[str, str], places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    with clients.metadata_consumer(kafka) as consumer:
        return {place: bounds_of(consumer, TopicPartition(*place), timeout=clients.TIMEOUT_S)[1] for place in places}
