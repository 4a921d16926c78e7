"""`tallystream aggregate`: one Spark query keeps the table of `metrics` and writes the sums to `metrics-agg`."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from tallystream.errors import ConfigError
from tallystream_aggregator import files
from tallystream_aggregator.health import Health
from tallystream_aggregator.jobs.aggregate.writer import Writer
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.lease import Lease
from tallystream_aggregator.kafka.start_position import resolve
from tallystream_aggregator.kafka.topics import TABLE_RECORD_BYTES, Topics, create_topics, require_partitions
from tallystream_aggregator.sharding import Sharding, sharding_of, sharding_path, write_sharding
from tallystream_aggregator.shutdown import StopRequest
from tallystream_aggregator.spark.checkpoint import PARTITIONS, state_partitions
from tallystream_aggregator.spark.kafka_options import source_options
from tallystream_aggregator.spark.query.modes import Choice, Mode, behind, run_modes
from tallystream_aggregator.spark.query.query import Streams, summed, warm
from tallystream_aggregator.spark.query.settings import GROUP, AggregateSettings
from tallystream_aggregator.spark.query.start import start_position
from tallystream_aggregator.spark.query_listener import HealthListener
from tallystream_aggregator.spark.runner import checkpoint_errors, start
from tallystream_aggregator.spark.session import build_session, end_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tallystream_aggregator.kafka.topic_selection import Offsets

__all__ = ["GROUP", "AggregateSettings", "run"]

log = logging.getLogger(__name__)

PRODUCER_BATCH_BYTES = 256 * 1024
"""The batch size of Spark's producer, in bytes. Kafka's default, 16 KB, fits only four rows of `metrics-table`.

`--kafka batch.size=` overrides it.
"""


def run(settings: AggregateSettings) -> int:
    """Aggregate until SIGTERM or SIGINT, then finish the batch and return 0.

    Delivery: the sums include every record of `metrics` exactly once, through crashes and restarts with the same
    checkpoint. Sums are written at least once. They are absolute, so a repeated sum changes nothing.

    Raises:
        ConfigError: a setting can't be used, or the table would begin in the middle of the topic.
        LeaseError: another aggregator is active, or has taken over.
        LoginError: the broker rejects the user or the certificate.
        TallystreamError: the query failed, or the broker can't be reached.
    """
    stop = StopRequest().install()
    topics = Topics(settings.topic_prefix, settings.table.otlp_topics)
    kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    source_options(settings.bootstrap_servers, settings.kafka)  # reject an option that only one client knows at once
    with ExitStack() as stack:
        health = stack.enter_context(Health("aggregate", settings.health))
        with clients.broker_errors(settings.bootstrap_servers), checkpoint_errors(settings.checkpoint):
            check_login(kafka)
            sharding = _sharding(settings)
            _prepare_topics(topics, kafka, sharding)
            files.make_folder(settings.checkpoint)
            health.report(settings.bootstrap_servers, topics.metrics, settings.kafka)
            begin = start_position(settings, topics, kafka).offsets  # rejected before the wait for the lease
            lease = Lease(topics.ledger, kafka, prefix=settings.topic_prefix)
            stack.callback(lease.close)
            lease.join()
            session = build_session(
                "tallystream aggregate",
                master=settings.master,
                driver_memory=settings.driver_memory,
                # More partitions than shards would only mean more state stores to commit.
                conf={PARTITIONS: str(sharding.partitions)},
            )
            stack.callback(end_session, session)
            warm(session, sharding.partitions)
            streams = Streams(session, settings, topics, shards=sharding.shards)
            if _choice(settings, topics, kafka, begin).now is Mode.CATCH_UP:
                streams.prepare()
            listener = HealthListener(health)
            session.streams.addListener(listener)
            health.status.stand_by()
            if not lease.wait(standby=settings.standby, stopped=stop.is_set):
                return 0
            sharding, streams = adopt_sharding(session, settings, topics, sharding, streams)
            _prepare_topics(topics, kafka, sharding)
            writer = Writer(settings, topics, kafka, lease, sharding=sharding, has_living=health.has_living)
            if writer.begin and not sharding.restored:
                sharding = msgspec.structs.replace(sharding, since=writer.epoch)
                write_sharding(settings.checkpoint, sharding)
            choice = _choice(settings, topics, kafka, writer.begin)
        stack.callback(writer.close)
        log.info("aggregating into %s, epoch %d, %d records behind", topics.agg, writer.epoch, choice.behind)

        def start_query(mode: Mode) -> StreamingQuery:
            return _start(streams.of(mode, writer.begin), settings, topics, sharding, epoch=writer.epoch)

        def after_batch() -> None:
            if writer.after_batch():
                stop.set()

        return run_modes(
            choice,
            start_query,
            listener,
            settings.checkpoint,
            stop=stop,
            after_batch=after_batch,
            ready=settings.ready_file,
        )


def adopt_sharding(
    session: SparkSession, settings: AggregateSettings, topics: Topics, sharding: Sharding, streams: Streams
) -> tuple[Sharding, Streams]:
    """Write the sharding of the checkpoint, and return it with the streams for it. Call it with the lease held.

    `sharding` was read before the wait for the lease. Another aggregator may have started the table with another one.

    Raises:
        ConfigError: the options differ from the sharding of the checkpoint, or the sharding does not fit its state.
    """
    found = _sharding(settings)
    write_sharding(settings.checkpoint, found)
    if found == sharding:
        return sharding, streams
    session.conf.set(PARTITIONS, str(found.partitions))
    return found, Streams(session, settings, topics, shards=found.shards)


def _sharding(settings: AggregateSettings) -> Sharding:
    found = sharding_of(settings.checkpoint, settings.shards, settings.state_partitions, settings.sum_tags)
    stored = state_partitions(settings.checkpoint)
    if stored not in (None, found.partitions):
        raise ConfigError(
            "--checkpoint",
            str(settings.checkpoint),
            f"its state has {stored} partitions, and {sharding_path(settings.checkpoint)} says {found.partitions}: "
            "restore that file, or move the checkpoint away and run tallystream rebuild",
        )
    return found


def _prepare_topics(topics: Topics, kafka: Mapping[str, str], sharding: Sharding) -> None:
    create_topics(clients.admin(kafka), topics, shards=sharding.shards)
    require_partitions(clients.admin(kafka), topics, shards=sharding.shards)


def _choice(settings: AggregateSettings, topics: Topics, kafka: Mapping[str, str], begin: Offsets) -> Choice:
    ends = resolve("latest", settings.selection(topics).find(kafka), GROUP, topics.ledger, kafka)
    return Choice(settings.mode, settings.max_records_per_trigger, behind(settings.checkpoint, begin, ends))


def _start(
    records: DataFrame, settings: AggregateSettings, topics: Topics, sharding: Sharding, *, epoch: int
) -> StreamingQuery:
    query = (
        summed(records, settings, topics, epoch=epoch, sharding=sharding)
        .writeStream.format("kafka")
        .option("kafka.batch.size", str(PRODUCER_BATCH_BYTES))
        .options(**source_options(settings.bootstrap_servers, settings.kafka))
        .option("kafka.max.request.size", str(TABLE_RECORD_BYTES))
        .option("kafka.buffer.memory", str(2 * TABLE_RECORD_BYTES))
        .outputMode("update")
        .option("checkpointLocation", str(settings.checkpoint))
        .queryName("aggregate")
        .trigger(processingTime=f"{settings.pacing.interval_ms} milliseconds")
    )
    return start(query, settings.checkpoint)
