"""`aggregate`, `rebuild`, which gives its table another layout, and `ship`, which writes its sums to a store."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tallystream.errors import ConfigError
from tallystream_cli import options as o
from tallystream_dashboards.exit_codes import INTERRUPTED
from tallystream_dashboards.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.process.signals import SignalSafeEvent
    from tallystream_aggregator.jobs.aggregate.settings import AggregateSettings


class AggregateCommand(o.Sections):
    """The sections of the help of `aggregate`."""

    sections = {  # noqa: RUF012 (a constant of the class)
        "Start": (
            *("checkpoint", "start", "catch_up", "ready_file"),
            *("topic_pattern", "partitions", "otlp_topic", "shards", "drop_tag", "keep_tags"),
        ),
        "Latency and limits": ("latency", "epoch", "max_rate", "forget_after_days", "table_memory", "on_data_loss"),
        "Spark": ("master", "driver_memory"),
        "Store": ("store", "rows", "lag_port"),
        "Kafka and security": ("bootstrap_servers", "topic_prefix", "kafka"),
        "Health": ("http_port", "http_address", "no_own_metrics"),
    }


def aggregate(
    *,
    checkpoint: o.Checkpoint,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    topic_pattern: Annotated[
        str | None,
        typer.Option(help="Read every topic whose whole name matches this regular expression, instead of metrics."),
    ] = None,
    partitions: Annotated[
        str | None,
        typer.Option(help="Read only these partitions of metrics, as in 0,2; added partitions are not read."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Where a new table starts: earliest, latest, a time in UTC, or offsets as JSON; "
            "by default earliest, if nothing before it was deleted.",
        ),
    ] = None,
    catch_up: Annotated[bool, typer.Option("--catch-up", help="Exit when all existing records are summed.")] = False,
    on_data_loss: Annotated[
        Literal["fail", "continue"], typer.Option(help="fail or continue when unread records have been deleted.")
    ] = "fail",
    latency: Annotated[
        str,
        typer.Option(
            help="The target time from a record to its sums: a duration from 200ms to 1m, as in 500ms or 2s; "
            "low publishes every 20 ms."
        ),
    ] = "1s",
    epoch: Annotated[
        float, typer.Option(help="The longest time between two checkpoints of the table, in seconds, from 1 to 100.")
    ] = 60.0,
    max_rate: Annotated[
        int | None,
        typer.Option(help="The most records that each shard reads in a second; by default there is no limit."),
    ] = None,
    forget_after_days: Annotated[
        float,
        typer.Option(help="Days after which a silent life's rows are deleted and only its counts are kept; 5 or more."),
    ] = 7.0,
    table_memory: Annotated[
        str,
        typer.Option(
            help="The most memory that the table of a shard may take, as in 800m or 2g; further lives and metrics are "
            "refused. An app may take three quarters of it."
        ),
    ] = "2g",
    otlp_topic: o.OtlpTopic = None,
    shards: o.Shards = None,
    drop_tag: o.DropTag = None,
    keep_tags: o.KeepTags = None,
    master: o.Master = None,
    driver_memory: o.DriverMemory = "1g",
    store: Annotated[
        str | None,
        typer.Option(help="Also ship sums and events to this store, as the command ship does, in the same process."),
    ] = None,
    rows: o.Rows = False,
    lag_port: Annotated[
        int | None,
        typer.Option(
            help="Also collect the lag of consumer groups into the store, as the command lag collect does, and serve "
            "it on this port; 0 selects a free port.",
            min=0,
            max=o.MAX_PORT,
        ),
    ] = None,
    http_port: o.HttpPort = None,
    http_address: o.HttpAddress = "127.0.0.1",
    no_own_metrics: o.NoOwnMetrics = False,
    ready_file: o.ReadyFile = None,
) -> None:
    """Sum the topic metrics over instances, as a changelog table, into metrics-agg."""
    o.require_spark()
    from tallystream_aggregator.health import HealthSettings
    from tallystream_aggregator.jobs.aggregate import job
    from tallystream_aggregator.jobs.aggregate.settings import AggregateSettings, parse_memory
    from tallystream_aggregator.kafka.clients import Cluster
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.sum_tags import parse_sum_tags
    from tallystream_aggregator.times import HOUR_MS

    settings = AggregateSettings(
        Cluster(bootstrap_servers, topic_prefix, o.kafka_options(kafka, os.environ)),
        checkpoint,
        topic_pattern=topic_pattern,
        partitions=o.parse_partitions(partitions),
        latency=latency,
        epoch_s=epoch,
        max_rate=max_rate,
        start=start,
        catch_up=catch_up,
        skip_lost=on_data_loss == "continue",
        table=TableSettings(
            forget_after_ms=o.whole_ms("--forget-after-days", forget_after_days, 24 * HOUR_MS),
            max_table_bytes=parse_memory("--table-memory", table_memory),
            otlp_topics=tuple(otlp_topic or ()),
        ),
        health=HealthSettings(http_port, http_address, own_metrics=not no_own_metrics),
        ready_file=ready_file,
        master=master,
        driver_memory=driver_memory,
        shards=shards,
        sum_tags=parse_sum_tags(drop_tag, keep_tags),
        store=None if store is None else StoreSettings.parse(store),
        rows=rows,
    )
    raise typer.Exit(job.run(settings, lag=None if lag_port is None else _lag(settings, lag_port, http_address)))


def _lag(settings: AggregateSettings, port: int, address: str) -> Callable[[SignalSafeEvent], None]:
    """Return what collects the lag into the aggregator's store.

    Raises:
        ConfigError: there is no store, or it can't be read.
    """
    from tallystream_dashboards.data.consumers import read_record_points
    from tallystream_dashboards.lag.collector.collector import CollectSettings, collect
    from tallystream_dashboards.store_api import routes

    if settings.store is None:
        raise ConfigError("--lag-port", port, "give it with --store")
    store, cluster = settings.store.require_readable(), settings.cluster
    to_collect = CollectSettings(
        store=store,
        bootstrap_servers=cluster.bootstrap_servers,
        http_port=port,
        port_option="--lag-port",
        http_address=address,
        options=cluster.kafka,
    )
    return partial(collect, to_collect, routes(store), read_record_points)


def rebuild(
    *,
    shards: Annotated[
        int | None, typer.Option(help="Split the table into this many shards; by default it keeps its shards.")
    ] = None,
    drop_tag: Annotated[
        list[str] | None,
        typer.Option(
            "--drop-tag",
            metavar="TAG",
            help="A tag that the sums lack from now on; repeatable. By default they keep their tags.",
        ),
    ] = None,
    keep_tags: Annotated[
        str | None, typer.Option(help="The only tags that the sums have from now on, as in region,topic.")
    ] = None,
    all_tags: Annotated[bool, typer.Option("--all-tags", help="Give the sums all tags again.")] = False,
    timeout: Annotated[
        float,
        typer.Option(help="Seconds for writing the table; at most transaction.max.timeout.ms of the brokers."),
    ] = 900.0,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
) -> None:
    """Give the table more shards, or other tags of its sums, while no aggregator runs.

    Without any of these options all sums are published again, as after metrics-agg was lost. The table has its earlier
    layout or the new one, whatever is killed. The next start of the aggregator continues it.
    """
    from tallystream_aggregator.jobs.rebuild import RebuildSettings, run
    from tallystream_aggregator.kafka.clients import Cluster
    from tallystream_aggregator.shutdown import stop_on_signals
    from tallystream_aggregator.table.sum_tags import SumTags, parse_sum_tags

    sum_tags = parse_sum_tags(drop_tag, keep_tags)
    if all_tags and sum_tags is not None:
        raise ConfigError("--all-tags", str(sum_tags), "give it without --drop-tag and --keep-tags")
    cluster = Cluster(bootstrap_servers, topic_prefix, o.kafka_options(kafka, os.environ))
    settings = RebuildSettings(cluster, shards, SumTags() if all_tags else sum_tags, timeout)

    def say(line: str) -> None:
        typer.echo(printable(line))

    with stop_on_signals() as stop:
        if not run(settings, say, stop):
            say("stopped: the table is as it was")
            raise typer.Exit(INTERRUPTED)


class ShipCommand(o.Sections):
    """The sections of the help of `ship`."""

    sections = {  # noqa: RUF012 (a constant of the class)
        "What and where": ("store", "retention_days", "group", "rows", "ready_file"),
        "Kafka and security": ("bootstrap_servers", "topic_prefix", "kafka"),
        "Health": ("http_port", "http_address", "no_own_metrics"),
    }


def ship(
    *,
    store: o.AnyStore,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    group: Annotated[
        str,
        typer.Option(help="The consumer group, one for each store; of two shippers of a group, one stands by."),
    ] = "tallystream-shipper",
    retention_days: o.RetentionDays = 30.0,
    rows: o.Rows = False,
    http_port: o.HttpPort = None,
    http_address: o.HttpAddress = "127.0.0.1",
    no_own_metrics: o.NoOwnMetrics = False,
    ready_file: o.ReadyFile = None,
) -> None:
    """Write the sums of metrics-agg, and events, to a store, in order; or serve the newest to Prometheus."""
    from tallystream_aggregator.health import HealthSettings
    from tallystream_aggregator.jobs.ship import ShipSettings, run
    from tallystream_aggregator.kafka.clients import Cluster
    from tallystream_aggregator.sinks.stores import StoreSettings

    settings = ShipSettings(
        Cluster(bootstrap_servers, topic_prefix, o.kafka_options(kafka, os.environ)),
        StoreSettings.parse(store, retention_days=retention_days),
        group=group,
        rows=rows,
        health=HealthSettings(http_port, http_address, own_metrics=not no_own_metrics),
        ready_file=ready_file,
    )
    raise typer.Exit(run(settings))
