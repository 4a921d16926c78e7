"""`tallystream ship`: one Spark query with its own checkpoint writes sums, events and rows to a store, in order."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from pyspark.sql import functions as f

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.kafka import clients, ledger
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.groups import GroupCommitter
from tallystream_aggregator.kafka.ledger import Epochs
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.shipping.dead_letters import RejectedPoints
from tallystream_aggregator.shipping.points import LIFE, SHARD, PointMapper, Shipped
from tallystream_aggregator.shipping.retry import StoppedError, retry
from tallystream_aggregator.shutdown import StopRequest
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink
from tallystream_aggregator.spark.checkpoint import last_committed
from tallystream_aggregator.spark.kafka_options import Fetch, source_options
from tallystream_aggregator.spark.query_listener import HealthListener
from tallystream_aggregator.spark.runner import run_until_stopped, start
from tallystream_aggregator.spark.session import build_session, end_session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from tallystream_aggregator.sinks.base import Point, Sink

log = logging.getLogger(__name__)

GROUP = "tallystream-shipper"
"""The default consumer group for the query's offsets. The topic prefix comes before it."""
STORE = "the store"
"""What the shipper waits for while points wait on Kafka, in the health response."""


@dataclass(frozen=True, slots=True)
class ShipSettings:
    """Settings of `tallystream ship`. `checkpoint` is Spark's directory. The files of the fences are beside it.

    `events` and `rows` say whether `metrics-events` and the rows of lives on `metrics-table` are shipped, too. A store
    that only takes numbers gets no events. Each of several shippers needs its own `group`.

    `max_records_per_trigger` limits a batch, `trigger_ms` is the interval between batches. `ready_file` is created
    after the first batch. `kafka` are librdkafka options.
    """

    bootstrap_servers: str
    checkpoint: Path
    store: StoreSettings
    topic_prefix: str = ""
    group: str = GROUP
    events: bool = True
    rows: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    fetch: Fetch = field(default_factory=Fetch)
    max_records_per_trigger: int = 20_000
    trigger_ms: int = 500
    health: HealthSettings = field(default_factory=HealthSettings)
    ready_file: Path | None = None
    master: str = "local[1]"
    driver_memory: str = "512m"

    def __post_init__(self) -> None:
        if self.max_records_per_trigger < 1:
            raise ConfigError("--max-records", self.max_records_per_trigger, "give a whole number above zero")
        if self.trigger_ms < 0:
            raise ConfigError("--trigger-ms", self.trigger_ms, "give milliseconds, 0 for as fast as possible")
        if not self.bootstrap_servers:
            raise ConfigError("--bootstrap-servers", self.bootstrap_servers, "name a broker, as in localhost:9092")


class Shipper:
    """Writes batches of records to a sink. Points that the sink rejects permanently go to `refused`.

    Delivery: at least once and in offset order. A batch returns only when the sink has all of it, so it waits while the
    sink is unavailable, and no later batch starts before.
    """

    def __init__(
        self, sink: Sink, mapper: PointMapper, refused: RejectedPoints, *, stop: StopRequest, health: Health
    ) -> None:
        self._sink = sink
        self._refused = refused
        self._mapper = mapper
        self.stop = stop
        self._health = health
        self._set_up = False
        self._counted: dict[str, int] = {}
        health.internal_metrics.set_function(
            "tallystream.ship.store_unavailable", lambda: int(health.status.waiting_for == STORE)
        )

    def poll(self) -> None:
        """Set the sink up if it is available, so that wrong settings are reported before Spark starts.

        Raises:
            ConfigError: the sink rejects the settings.
        """
        try:
            self._set_up_once()
        except SinkUnavailableError as error:
            self._health.status.waiting_for = STORE
            log.warning("%s Points wait on Kafka and are written when it is available.", error)

    def batch(self, frame: DataFrame, number: int) -> None:
        """Ship one batch.

        Raises:
            StoppedError: a stop was requested while the sink was unavailable. The batch is not finished.
            ConfigError: the sink rejects the settings.
        """
        rows = frame.select("topic", "offset", "key", "value", "partition").collect()
        points = self._mapper.points(
            Shipped(topic, offset, _bytes(key), _bytes(value), partition)
            for topic, offset, key, value, partition in rows
        )

        def write() -> None:
            bad: list[tuple[Point, str]] = []  # of this attempt: the next attempt reports them again
            self._sink.refusals.listen = lambda point, reason: bad.append((point, reason))
            try:
                self._set_up_once()
                self._sink.write(points)
                self._sink.flush()
                self._refused.send(bad)
            except SinkUnavailableError:
                self._health.status.waiting_for = STORE
                raise
            self._health.status.waiting_for = None

        retry(write, self.stop)
        log.debug("batch %d: %d points", number, len(points))
        self._health.internal_metrics.add("tallystream.ship.points", len(points))
        self._count("rejected", self._sink.rejected)
        self._count("unreadable", self._mapper.unreadable)
        self._count("stale", self._mapper.dropped)

    def _count(self, name: str, total: int) -> None:
        self._health.internal_metrics.add(f"tallystream.ship.{name}", total - self._counted.get(name, 0))
        self._counted[name] = total

    def _set_up_once(self) -> None:
        if not self._set_up:
            self._sink.setup()
            self._set_up = True


def run(settings: ShipSettings) -> int:
    """Ship until SIGTERM or SIGINT; then finish the batch and return 0.

    Delivery: every row of `metrics-agg` that a current aggregator wrote becomes its point, at least once and in order
    within a series, and so do events and rows where they are asked for; a store that is unavailable delays
    points and loses none.

    Raises:
        ConfigError: a setting can't be used, or the store refuses it.
        TallystreamError: the query failed, or the broker can't be reached.
    """
    stop = StopRequest().install()
    topics = Topics(settings.topic_prefix)
    source_options(settings.bootstrap_servers, settings.kafka)  # reject an option that only one client knows at once
    with ExitStack() as stack:
        health = stack.enter_context(Health("ship", settings.health, trigger_s=settings.trigger_ms / 1000))
        kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
        try:
            check_login(kafka)
            create_topics(clients.admin(kafka), topics)
        except KafkaException as error:
            raise clients.failed(settings.bootstrap_servers, error) from error
        sink = open_sink(settings.store)
        stack.callback(sink.close)
        refused = RejectedPoints(topics.dead, kafka, settings.store.spec)
        epochs = Epochs(lambda: _highest_epoch(topics, kafka, stop, health))
        mapper = PointMapper(topics, settings.checkpoint, epochs)
        shipper = Shipper(sink, mapper, refused, stop=stop, health=health)
        shipper.poll()
        health.report(settings.bootstrap_servers, topics.metrics, settings.kafka)
        committer = GroupCommitter(settings.bootstrap_servers, settings.topic_prefix + settings.group, settings.kafka)
        stack.callback(committer.close)
        read = _subscribed(settings, topics)
        for topic in committer.keep(lambda topic, _partition: topic in read, topic=topics.agg):
            log.info("%s is not shipped any more; its offsets are removed from the group", topic)
        session = build_session("tallystream ship", master=settings.master, driver_memory=settings.driver_memory)
        stack.callback(end_session, session)
        session.streams.addListener(HealthListener(health))
        log.info("shipping %s to %s", ", ".join(read), settings.store.spec)
        return _run(session, settings, topics, shipper, committer)


def _highest_epoch(topics: Topics, kafka: Mapping[str, str], stop: StopRequest, health: Health) -> int | None:
    """Return the highest epoch of the ledger. Wait while the broker is unavailable.

    Raises:
        StoppedError: a stop was requested meanwhile.
    """
    found: list[ledger.LedgerRow] = []

    def read() -> None:
        try:
            found[:] = ledger.read_rows(topics.ledger, kafka, timeout=10)
        except (KafkaException, TallystreamError) as error:
            health.status.waiting_for = "the ledger"
            reason = str(error.args[0]).rstrip(".")
            raise SinkUnavailableError(f"{topics.ledger} can't be read: {reason}.") from error
        health.status.waiting_for = None

    retry(read, stop)
    return ledger.highest_epoch(found)


def _run(
    session: SparkSession, settings: ShipSettings, topics: Topics, shipper: Shipper, committer: GroupCommitter
) -> int:
    failures: list[Exception] = []

    def batch(frame: DataFrame, number: int) -> None:
        try:
            shipper.batch(frame, number)
        except Exception as error:
            failures.append(error)  # Spark reports only the text of a Java exception
            raise

    def begins(key: bytes) -> Column:
        return f.col("key").cast("string").startswith(key.decode())

    commits = _Commits(settings.checkpoint, committer)
    writer = (
        session.readStream.format("kafka")
        .options(**settings.fetch.options())
        .options(**source_options(settings.bootstrap_servers, settings.kafka))
        # Spark reads topics that are new to the checkpoint from their beginning.
        .option("subscribe", ",".join(_subscribed(settings, topics)))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(settings.max_records_per_trigger))
        # Compaction deletes old sums of a key: a later row of the same topic has replaced them.
        .option("failOnDataLoss", "false")
        .load()
        .where(f.col("topic").isin(topics.agg, topics.events) | begins(LIFE) | begins(SHARD))
        .writeStream.foreachBatch(batch)
        .option("checkpointLocation", str(settings.checkpoint))
        .queryName("ship")
        .trigger(processingTime=f"{settings.trigger_ms} milliseconds")
    )
    query, ready = start(writer, settings.checkpoint), settings.ready_file
    try:
        return run_until_stopped(
            query, settings.checkpoint, ready=ready, stop=shipper.stop, after_batch=commits.catch_up
        )
    except TallystreamError:
        if failures and isinstance(failures[-1], StoppedError):
            return 0
        if failures and isinstance(failures[-1], TallystreamError):
            raise failures[-1] from None
        raise


def _subscribed(settings: ShipSettings, topics: Topics) -> list[str]:
    events = settings.events and not settings.store.numbers_only
    return [topics.agg, *([topics.events] if events else []), *([topics.table] if settings.rows else [])]


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


class _Commits:
    """Commits the end of the last finished batch. The checkpoint's log has it, so also after a crash."""

    def __init__(self, checkpoint: Path, committer: GroupCommitter) -> None:
        self._checkpoint = checkpoint
        self._committer = committer
        self._last = -1

    def catch_up(self) -> None:
        done = last_committed(self._checkpoint)
        if done is None or done[0] == self._last:
            return
        try:
            self._committer.commit(done[1])
        except KafkaException as error:
            log.warning("offsets of batch %d: not committed yet (%s); trying again", done[0], error)
            return
        self._last = done[0]
