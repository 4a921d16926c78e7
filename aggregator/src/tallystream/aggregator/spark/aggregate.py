"""`tallystream aggregate`: the changelog table over `metrics`, its sums to `metrics-agg`, as one Spark query."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tallystream.aggregator import ledger, sums
from tallystream.aggregator.seed import read_seed, seed_path
from tallystream.aggregator.spark.bookkeeping import Bookkeeper
from tallystream.aggregator.spark.commits import GroupCommitter
from tallystream.aggregator.spark.kafka import source_options
from tallystream.aggregator.spark.offsets import last_committed
from tallystream.aggregator.spark.running import StopRequest, run_until_stopped
from tallystream.aggregator.spark.session import build_session, end_session
from tallystream.aggregator.spark.wake import wake
from tallystream.aggregator.start import parse_start, resolve
from tallystream.aggregator.table.table import TableSettings
from tallystream.aggregator.topics import TABLE_RECORD_BYTES, Topics, create_topics
from tallystream.reporter.errors import ConfigError, TallystreamError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

GROUP = "tallystream-aggregator"
"""The consumer group under which the query's offsets are committed; prefixed like the topics."""


@dataclass(frozen=True, slots=True)
class AggregateSettings:
    """What `tallystream aggregate` may be told.

    `checkpoint` is Spark's own directory: offsets, commits and the table. `kafka` are librdkafka options.
    `max_records_per_trigger` caps a batch, `trigger_ms` is the interval between two. `accept_partial` lets a new table
    begin in the middle of the topic. `ready_file` is created when the first batch has run. `start` says where a new
    table begins (tallystream.aggregator.start); None is earliest, where there never was one. `catch_up` ends when
    everything that is there is summed. `on_data_loss`: whether the query fails, or goes on, when records that it has
    not read were deleted.
    """

    bootstrap_servers: str
    checkpoint: Path
    topic_prefix: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_records_per_trigger: int = 50_000
    trigger_ms: int = 500
    start: str | None = None
    accept_partial: bool = False
    catch_up: bool = False
    on_data_loss: Literal["fail", "continue"] = "fail"
    table: TableSettings = field(default_factory=TableSettings)
    ready_file: Path | None = None
    master: str = "local[2]"
    driver_memory: str = "1g"

    def __post_init__(self) -> None:
        if self.max_records_per_trigger < 1:
            raise ConfigError("--max-records", self.max_records_per_trigger, "give a whole number above zero")
        if self.trigger_ms < 0:
            raise ConfigError("--trigger-ms", self.trigger_ms, "give milliseconds, 0 for as fast as possible")
        if self.on_data_loss not in ("fail", "continue"):
            raise ConfigError("--on-data-loss", self.on_data_loss, "give fail or continue")
        parse_start(self.start or "earliest")
        if not self.bootstrap_servers:
            raise ConfigError("--bootstrap-servers", self.bootstrap_servers, "name a broker, as in localhost:9092")


def run(settings: AggregateSettings) -> int:
    """Aggregate until SIGTERM or SIGINT; then finish the batch and return 0.

    Delivery: every record of `metrics` is in the sums exactly once, through crashes and restarts on the same
    checkpoint; sums are written at least once, absolute, so that a repeated one changes nothing.

    Raises:
        ConfigError: a setting can't be used, or the table would begin in the middle of the topic.
        TallystreamError: the query failed, or the broker can't be reached.
    """
    stop = StopRequest()
    stop.install()
    topics = Topics(settings.topic_prefix)
    kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    java = source_options(settings.bootstrap_servers, settings.kafka)
    try:
        create_topics(AdminClient(dict(kafka)), topics)
        rows = [ledger.decode(value) for value in ledger.read_tail(topics.ledger, kafka)]
        begin, partial = _begin(settings, topics, kafka, rows)
        epoch = _next_epoch(rows, topics, kafka)
        ends = _ends(topics, kafka) if settings.catch_up else None
        writer = ledger.LedgerWriter(topics.ledger, kafka)
        opened = int(time.time() * 1000)
        if not begin or _seed(settings):
            wake(topics.metrics, kafka)
        start = {topics.metrics: {str(partition): offset for partition, offset in begin.items()}} if begin else {}
        row = ledger.LedgerRow(kind="opened", query=ledger.QUERY, epoch=epoch, ts=opened, start=start, partial=partial)
        writer.write([row])
    except KafkaException as error:
        raise TallystreamError(f"broker {settings.bootstrap_servers}: {error.args[0]}") from error
    committer = GroupCommitter(settings.bootstrap_servers, settings.topic_prefix + GROUP, settings.kafka)
    books = Bookkeeper(settings.checkpoint, committer, writer, epoch=epoch, last=_last(rows, settings.checkpoint))
    books.catch_up()
    session = build_session(
        "tallystream aggregate",
        master=settings.master,
        driver_memory=settings.driver_memory,
        # One shard: one group, so one task; a second partition would only be one more state store to commit.
        conf={"spark.sql.shuffle.partitions": "1"},
    )
    try:
        log.info("aggregating %s into %s, epoch %d", topics.metrics, topics.agg, epoch)
        stream = (
            _plan(session, settings, topics, begin=begin, epoch=epoch)
            .writeStream.format("kafka")
            .options(**java)
            .option("kafka.max.request.size", str(TABLE_RECORD_BYTES))
            .option("kafka.buffer.memory", str(2 * TABLE_RECORD_BYTES))
            .outputMode("update")
            .option("checkpointLocation", str(settings.checkpoint))
            .queryName("aggregate")
            .trigger(processingTime=f"{settings.trigger_ms} milliseconds")
        )

        def after_batch() -> None:
            books.catch_up()
            # Not Spark's trigger availableNow: with timers in the plan it never ends (Spark 4.2).
            if ends is not None and books.reached(ends):
                stop.event.set()

        return run_until_stopped(stream.start(), ready=settings.ready_file, stop=stop, after_batch=after_batch)
    finally:
        end_session(session)
        committer.close()


def _plan(
    session: SparkSession,
    settings: AggregateSettings,
    topics: Topics,
    *,
    begin: Mapping[int, int],
    epoch: int,
) -> DataFrame:
    from tallystream.aggregator.spark.processor import OUTPUT, TableProcessor

    starting = json.dumps({topics.metrics: begin}) if begin else "earliest"
    source = (
        session.readStream.format("kafka")
        .options(**source_options(settings.bootstrap_servers, settings.kafka))
        .option("subscribe", topics.metrics)
        .option("startingOffsets", starting)
        .option("maxOffsetsPerTrigger", str(settings.max_records_per_trigger))
        .option("failOnDataLoss", str(settings.on_data_loss == "fail").lower())
        .load()
    )
    records = source.selectExpr(
        "0 AS shard", "topic", "partition", "offset", "unix_millis(timestamp) AS timestamp_ms", "key", "value"
    )
    return records.groupBy("shard").transformWithStateInPandas(
        statefulProcessor=TableProcessor(topics, settings.table, epoch=epoch, seed=_seed(settings)),
        outputStructType=OUTPUT,
        outputMode="Update",
        timeMode="ProcessingTime",
    )


def _begin(
    settings: AggregateSettings, topics: Topics, kafka: Mapping[str, str], rows: Sequence[ledger.LedgerRow]
) -> tuple[dict[int, int], bool]:
    """Return the offsets at which a new table begins, and whether it misses earlier records, which it may if told so.

    A checkpoint that has begun wins over `start`, and so does a seed: the offsets are empty then, or the seed's.
    """
    start = parse_start(settings.start or "earliest")
    if last_committed(settings.checkpoint) is not None:
        if settings.start is not None:
            log.info("%s goes on where it was: --from %s is for a new one", settings.checkpoint, settings.start)
        return {}, False
    seed = _seed(settings)
    if seed is not None:
        if settings.start is not None:
            raise ConfigError("--from", settings.start, f"there is a seed for the checkpoint: move {seed} away")
        log.info("beginning with the table in %s", seed)
        return read_seed(seed).offsets, False
    if settings.start is None and any(row.kind == "batch" and row.query == ledger.QUERY for row in rows):
        raise ConfigError(
            "--checkpoint",
            str(settings.checkpoint),
            f"it has no table, and {topics.ledger} says that there was one: name its checkpoint; or, if that is lost, "
            f"run tallystream rebuild --checkpoint {settings.checkpoint}; or begin from nothing with --from earliest",
        )
    offsets = resolve(start, topics.metrics, settings.topic_prefix + GROUP, topics.ledger, kafka)
    missing = {partition: first for partition, first in offsets.items() if first > 0}
    if missing and not settings.accept_partial:
        raise ConfigError(
            "--checkpoint",
            str(settings.checkpoint),
            f"it is new, and would begin in the middle of {topics.metrics} (partition → offset: {missing}), so the "
            "sums would lack what came before: name the checkpoint that has it, or accept that with --accept-partial",
        )
    return offsets, bool(missing)


def _seed(settings: AggregateSettings) -> Path | None:
    path = seed_path(settings.checkpoint)
    return path if path.exists() else None


def _ends(topics: Topics, kafka: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Return where `metrics` ends now."""
    ends = resolve("latest", topics.metrics, GROUP, topics.ledger, kafka)
    return {topics.metrics: {str(partition): end for partition, end in ends.items()}}


def _next_epoch(rows: Sequence[ledger.LedgerRow], topics: Topics, kafka: Mapping[str, str]) -> int:
    # The sums say the epoch too, should the ledger have been emptied by retention.
    said = [row.epoch for row in rows] + [_epoch(value) for value in ledger.read_tail(topics.agg, kafka)]
    return max(said, default=0) + 1


def _last(rows: Sequence[ledger.LedgerRow], checkpoint: Path) -> int:
    """Return the last batch of this checkpoint that the ledger has, -1 for none."""
    done = last_committed(checkpoint)
    if done is None:
        return -1
    # A higher number in the ledger is of another checkpoint: rows are written only after a batch is finished.
    return min(done[0], max((row.batch for row in rows if row.query == ledger.QUERY), default=-1))


def _epoch(value: bytes) -> int:
    try:
        return sums.decode(value).epoch
    except msgspec.DecodeError:
        return 0  # not a sum of ours, so no epoch of ours
