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
from tallystream_aggregator.shipping.points import LIFE, SHARD, PointMapper, Shipped
from tallystream_aggregator.shipping.shipper import RejectedPoints, Shipper, StoppedError, retry
from tallystream_aggregator.shutdown import StopRequest
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink
from tallystream_aggregator.spark.checkpoint import TopicIdentity, last_committed
from tallystream_aggregator.spark.kafka_options import Fetch, source_options
from tallystream_aggregator.spark.query_listener import HealthListener
from tallystream_aggregator.spark.runner import checkpoint_errors, run_until_stopped, start
from tallystream_aggregator.spark.session import build_session, end_session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
log = logging.getLogger(__name__)

SHIP_AGAIN = "ship all of it with a new --checkpoint"
"""The remedy if a topic was created again. The points that are stored already do not change."""

GROUP = "tallystream-shipper"
"""The default consumer group for the query's offsets. The topic prefix comes before it."""


@dataclass(frozen=True, slots=True)
class ShipSettings:
    """Settings of `tallystream ship`.

    `checkpoint` is Spark's directory. The IDs of the topics and the files of the fences are beside it.

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


def run(settings: ShipSettings) -> int:
    """Ship until SIGTERM or SIGINT; then finish the batch and return 0.

    Delivery: every row of `metrics-agg` that a current aggregator wrote becomes its point, at least once and in order
    within a series, and so do events and rows if the settings include them. A store that is unavailable
    delays points and loses none.

    Raises:
        ConfigError: a setting can't be used, or the store rejects it.
        TallystreamError: the query failed, the broker can't be reached, or a topic was deleted and created again.
    """
    stop = StopRequest().install()
    topics = Topics(settings.topic_prefix)
    source_options(settings.bootstrap_servers, settings.kafka)  # reject an option that only one client knows at once
    with ExitStack() as stack:
        health = stack.enter_context(Health("ship", settings.health, trigger_s=settings.trigger_ms / 1000))
        kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
        read = _subscribed(settings, topics)
        with clients.broker_errors(settings.bootstrap_servers), checkpoint_errors(settings.checkpoint):
            check_login(kafka)
            create_topics(clients.admin(kafka), topics)
            TopicIdentity(settings.checkpoint, kafka, remedy=SHIP_AGAIN).check(read)
        sink = open_sink(settings.store)
        stack.callback(sink.close)
        rejected = RejectedPoints(topics.dead, kafka, settings.store.spec)
        epochs = Epochs(lambda: highest_epoch(topics, kafka, stop, health))
        mapper = PointMapper(topics, settings.checkpoint, epochs)
        shipper = Shipper(sink, mapper, rejected, stop=stop, health=health)
        shipper.set_up()
        health.report(settings.bootstrap_servers, topics.metrics, settings.kafka)
        committer = GroupCommitter(kafka, settings.topic_prefix + settings.group)
        stack.callback(committer.close)
        for topic in committer.keep(lambda topic, _partition: topic in read, topic=topics.agg):
            log.info("%s is not shipped any more; its offsets are removed from the group", topic)
        session = build_session("tallystream ship", master=settings.master, driver_memory=settings.driver_memory)
        stack.callback(end_session, session)
        session.streams.addListener(HealthListener(health))
        log.info("shipping %s to %s", ", ".join(read), settings.store.spec)
        return _run(session, settings, topics, shipper, committer, stop=stop)


def highest_epoch(topics: Topics, kafka: Mapping[str, str], stop: StopRequest, health: Health) -> int | None:
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
    session: SparkSession,
    settings: ShipSettings,
    topics: Topics,
    shipper: Shipper,
    committer: GroupCommitter,
    *,
    stop: StopRequest,
) -> int:
    failures: list[Exception] = []

    def batch(frame: DataFrame, _number: int) -> None:
        rows = frame.select("topic", "offset", "key", "value", "partition").collect()
        try:
            shipper.ship(
                Shipped(topic, offset, _bytes(key), _bytes(value), partition)
                for topic, offset, key, value, partition in rows
            )
        except Exception as error:
            failures.append(error)  # Spark reports only the text of a Java exception
            raise

    def begins(key: bytes) -> Column:
        return f.col("key").cast("string").startswith(key.decode())

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
    query = start(writer, settings.checkpoint)
    try:
        return run_until_stopped(
            query,
            settings.checkpoint,
            stop=stop,
            after_batch=lambda: _commit_offsets(settings.checkpoint, committer),
            ready=settings.ready_file,
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


def _commit_offsets(checkpoint: Path, committer: GroupCommitter) -> None:
    """Commit the end of the last finished batch, which the checkpoint's log has, so also after a crash."""
    done = last_committed(checkpoint)
    if done is None:
        return
    try:
        committer.commit(done[1])
    except KafkaException as error:
        log.warning("offsets of batch %d: not committed yet (%s); trying again", done[0], error)
