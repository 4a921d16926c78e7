"""`tallystream aggregate`: a Spark query keeps the table of `metrics`, and its tasks publish the sums."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator import files
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.jobs.aggregate.clock_records import ClockRecords
from tallystream_aggregator.jobs.aggregate.driver import Driver
from tallystream_aggregator.jobs.aggregate.failures import checkpoint_errors
from tallystream_aggregator.jobs.aggregate.generations import Generations
from tallystream_aggregator.jobs.aggregate.query_watch import GROUP, QueryWatch, commit_offsets
from tallystream_aggregator.jobs.aggregate.table_start import resolve, table_start
from tallystream_aggregator.jobs.aggregate.table_tail import TableTail
from tallystream_aggregator.jobs.ship import ShipSettings, ship
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.lease import Lease, LeaseError
from tallystream_aggregator.kafka.topics import create_topics, require_partitions
from tallystream_aggregator.shutdown import StopRequest, in_threads
from tallystream_aggregator.spark.epochs.query import SETTINGS, require_slots, warm
from tallystream_aggregator.spark.epochs.task import KafkaAccess
from tallystream_aggregator.spark.session import build_session, end_session, start_jvm

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

    from tallystream.process.signals import SignalSafeEvent
    from tallystream_aggregator.jobs.aggregate.settings import AggregateSettings
    from tallystream_aggregator.kafka.topic_selection import Offsets


def run(settings: AggregateSettings, *, lag: Callable[[SignalSafeEvent], object] | None = None) -> int:
    """Aggregate until SIGTERM or SIGINT, store the table's state, and return 0. Wait while another aggregator does.

    Delivery: the sums include every record of `metrics` exactly once, and each change of them is published exactly
    once for readers with `read_committed`, through kills, pauses and takeovers, with the checkpoint or without it.

    `lag` collects the lag until its argument is set. It and the shipper run in threads, and not in a standby.

    Raises:
        ConfigError: a setting can't be used, or a new table would begin in the middle of the topic.
        LeaseError: another aggregator has taken over.
        LoginError: the broker rejects the user or the certificate.
        TallystreamError: only a person can continue; the message has the remedy. Or the broker can't be reached.
    """
    stop = StopRequest().install()
    topics, cluster = settings.topics, settings.cluster
    kafka = cluster.options
    with ExitStack() as stack:
        health = stack.enter_context(Health("aggregate", settings.health))
        with clients.broker_errors(cluster.bootstrap_servers), checkpoint_errors(settings.checkpoint):
            check_login(kafka)
            # Spark starts in a thread: it takes longer than all that is asked of Kafka meanwhile.
            spark = stack.enter_context(ThreadPoolExecutor(1, "tallystream-spark"))
            spark.submit(start_jvm, settings.master, settings.driver_memory)
            admin = clients.admin(kafka)
            create_topics(admin, topics, shards=settings.shards or 1)
            files.make_folder(settings.checkpoint)
            health.report(cluster.bootstrap_servers, topics.metrics, cluster.kafka)
            access = KafkaAccess(kafka, settings.selection, topics.prefix + GROUP)
            looking = access(lambda: False)  # an early stop is no error
            begin = table_start(settings, looking)  # rejected before the wait for the lease
            require_partitions(admin, topics, shards=begin.shards)
            lease = Lease(topics.ledger, kafka, prefix=topics.prefix)
            stack.callback(lease.close)
            starting = spark.submit(_start_session, settings, begin.loops, stop)
            stack.callback(_end_session, starting)
            health.status.stand_by()
            if not lease.wait(stopped=lambda: stop.is_set() or _has_failed(starting)):
                if not stop.is_set():
                    starting.result()  # raises its error
                return 0
            before, begin = begin, table_start(settings, looking)
            if begin.loops != before.loops:
                raise LeaseError(f"lease: another aggregator has begun a table of {begin.shards} shards: start again.")
            create_topics(admin, topics, shards=begin.shards, only=[topics.shards])
            broker = access(stop.is_set)
            source = broker.source(committed=True)
            stack.callback(source.close)
            generations = Generations(broker, topics, shards=begin.shards)
            stack.callback(generations.close)
            group = stack.enter_context(clients.metadata_consumer(kafka, access.group))
            functions: dict[str, Callable[[SignalSafeEvent], object]] = {}
            if settings.store is not None:
                health_of_ship = HealthSettings(own_metrics=False)
                to_ship = ShipSettings(cluster, settings.store, rows=settings.rows, health=health_of_ship)
                functions["tallystream-ship"] = partial(ship, to_ship, within=health)
            if lag is not None:
                functions["tallystream-lag"] = lag
            stack.enter_context(in_threads(functions, stop))
            ends: Offsets | None = None
            if settings.catch_up:
                ends = resolve("latest", broker.partitions(), broker)
            watch = QueryWatch(
                TableTail(source, topics, begin.shards),
                broker=broker,
                append_clocks=ClockRecords(kafka).send,
                commit_offsets=partial(commit_offsets, group),
                health=health,
                otlp=settings.selection.otlp,
                ends=ends,
            )
            return Driver(
                starting.result(),
                settings,
                access,
                begin,
                lease=lease,
                generations=generations,
                watch=watch,
                stop=stop,
            ).run()


def _start_session(settings: AggregateSettings, loops: int, stop: StopRequest) -> SparkSession:
    """Return a session with a slot for each loop, whose Python workers are starting."""
    session = build_session(
        "tallystream aggregate",
        # Four tries of each task. A slot is no core: the loops wait for records most of the time.
        master=settings.master or f"local[{max(2, loops)},4]",
        driver_memory=settings.driver_memory,
        conf=SETTINGS,
    )
    try:
        require_slots(session, loops, stop.is_set)
    except ConfigError:
        end_session(session)
        raise
    warm(session, loops)
    return session


def _has_failed(starting: Future[SparkSession]) -> bool:
    return starting.done() and starting.exception() is not None


def _end_session(starting: Future[SparkSession]) -> None:
    if starting.exception() is None:  # else the start has failed, and its caller knows
        end_session(starting.result())
