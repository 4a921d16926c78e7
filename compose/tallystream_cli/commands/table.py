"""The commands of the table: aggregate, rebuild after a lost checkpoint, and forget."""

from __future__ import annotations

import json as json_
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tallystream.errors import ConfigError
from tallystream_aggregator.terminal import printable
from tallystream_cli import options as o

if TYPE_CHECKING:
    from tallystream_aggregator.table.decode import Forget


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
            help="Where a new table starts: earliest, latest, group, a time in UTC, ledger:TIME, or offsets as JSON; "
            "by default earliest, if there never was a table.",
        ),
    ] = None,
    accept_partial: Annotated[
        bool, typer.Option("--accept-partial", help="Let a new table start in the middle of the topic.")
    ] = False,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait while another aggregator writes, and take over when it ends.")
    ] = False,
    catch_up: Annotated[bool, typer.Option("--catch-up", help="Exit when all existing records are summed.")] = False,
    on_data_loss: Annotated[str, typer.Option(help="fail or continue when unread records have been deleted.")] = "fail",
    max_records: o.MaxRecords = 50_000,
    latency: Annotated[
        str,
        typer.Option(
            help="The target time from a record to its sums: a duration from 200ms to 1m, as in 500ms or 2s; "
            "low starts a batch as soon as there are records."
        ),
    ] = "1s",
    mode: Annotated[str, typer.Option(help="live, catch-up, or auto: chosen by the lag, also while it runs.")] = "auto",
    fetch_tries: o.FetchTries = 5,
    fetch_pause_ms: o.FetchPauseMs = 1000,
    fetch_timeout_ms: o.FetchTimeoutMs = 120_000,
    retire_after_h: Annotated[
        float, typer.Option(help="Hours after which a silent life moves from memory to disk; no sum changes.")
    ] = 24.0,
    forget_after_days: Annotated[
        float,
        typer.Option(help="Days after which a silent life's rows are deleted and only its counts are kept; 7 or more."),
    ] = 30.0,
    max_app_metrics: Annotated[
        int,
        typer.Option(help="The maximum number of metrics (name, type and tags) of an app; further ones are rejected."),
    ] = 1_000_000,
    otlp_topic: o.OtlpTopic = None,
    shards: o.Shards = None,
    state_partitions: o.StatePartitions = None,
    master: o.Master = "local[2,4]",
    driver_memory: o.DriverMemory = "1g",
    http_port: o.HttpPort = None,
    http_address: o.HttpAddress = "127.0.0.1",
    no_own_metrics: o.NoOwnMetrics = False,
    ready_file: o.ReadyFile = None,
) -> None:
    """Sum the topic metrics over instances, as a changelog table, into metrics-agg."""
    o.need_spark()
    from tallystream_aggregator.health import HealthSettings
    from tallystream_aggregator.jobs.aggregate.job import AggregateSettings, run
    from tallystream_aggregator.kafka.topic_selection import parse_partitions
    from tallystream_aggregator.spark.kafka_options import Fetch
    from tallystream_aggregator.spark.query.modes import Mode
    from tallystream_aggregator.table.limits import HOUR_MS, TableSettings

    settings = AggregateSettings(
        bootstrap_servers,
        checkpoint,
        topic_prefix=topic_prefix,
        topic_pattern=topic_pattern,
        partitions=parse_partitions(partitions),
        kafka=o.kafka_options(kafka, os.environ),
        max_records_per_trigger=max_records,
        latency=latency,
        fetch=Fetch(fetch_tries, fetch_pause_ms, fetch_timeout_ms),
        mode=None if o.one_of("--mode", mode, "auto", *Mode) == "auto" else Mode(mode),
        start=start,
        accept_partial=accept_partial,
        standby=standby,
        catch_up=catch_up,
        on_data_loss=o.one_of("--on-data-loss", on_data_loss, "fail", "continue"),  # type: ignore[arg-type]  # just so
        table=TableSettings(
            retire_after_ms=int(retire_after_h * HOUR_MS),
            forget_after_ms=int(forget_after_days * 24 * HOUR_MS),
            max_app_metrics=max_app_metrics,
            otlp_topics=tuple(otlp_topic or ()),
        ),
        health=HealthSettings(http_port, http_address, own_metrics=not no_own_metrics),
        ready_file=ready_file,
        master=master,
        driver_memory=driver_memory,
        shards=shards,
        state_partitions=state_partitions,
    )
    raise typer.Exit(run(settings))


def rebuild(
    *,
    checkpoint: o.Checkpoint,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    accept_partial: Annotated[
        bool, typer.Option("--accept-partial", help="Continue although records that the table lacks were deleted.")
    ] = False,
    shards: Annotated[
        int | None, typer.Option(help="Split the table into this many shards; by default it keeps its shards.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(help="The number of partitions of Spark's state for the shards; by default one for each shard."),
    ] = None,
) -> None:
    """Make a lost table again from metrics-table, as the beginning of a new checkpoint."""
    from tallystream_aggregator.jobs.rebuild import RebuildSettings, run

    settings = RebuildSettings(
        bootstrap_servers,
        checkpoint,
        topic_prefix=topic_prefix,
        kafka=o.kafka_options(kafka, os.environ),
        accept_partial=accept_partial,
        shards=shards,
        partitions=partitions,
    )
    raise typer.Exit(run(settings, lambda line: typer.echo(printable(line))))


def forget(
    *,
    instance: Annotated[str | None, typer.Option(help="Remove the lives of this instance ID.")] = None,
    life: Annotated[str | None, typer.Option(help="Remove only this life of the instance: its ULID.")] = None,
    metric: Annotated[str | None, typer.Option(help="Remove the metrics of this name from all lives.")] = None,
    app: Annotated[str | None, typer.Option(help="Remove only from this app.")] = None,
    type_: Annotated[
        str | None, typer.Option("--type", help="Remove only metrics of this type, as in counter.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Remove only metrics that have this tag; repeatable."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove; without this option the command only shows what it would remove.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the aggregator to apply the removal.")] = 60.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    bootstrap_servers: o.LocalServers = None,
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
) -> None:
    """Take an instance's lives, one life, or a metric out of the sums; shown first, done with --yes.

    For what a broken or hostile instance left. What still publishes comes back with its next snapshot, as values are
    absolute. Of an instance, what its forgotten lives counted stays: only a metric is taken out of that, too.
    """
    from rich.console import Console

    from tallystream_aggregator.jobs.forget import ForgetSettings, publish, read_plan
    from tallystream_aggregator.shutdown import stop_on_signals
    from tallystream_cli.local import discovery
    from tallystream_cli.output import forget as _forget

    what = _chosen(instance, metric, {"app": app, "life": life, "type": type_, "tags": dict(map(_tag, tag or ()))})
    if timeout <= 0:
        raise ConfigError("--timeout", timeout, "give a number of seconds above 0")
    local = discovery.find() if bootstrap_servers is None else None
    if local is not None:
        local.say(f"broker {local.record.bootstrap_servers}")
    cluster = discovery.cluster(local, bootstrap_servers, topic_prefix, kafka)
    settings = ForgetSettings(cluster.bootstrap_servers, what, instance, cluster.topic_prefix, cluster.kafka, timeout)

    def say(line: str) -> None:
        sys.stderr.write(f"{printable(line)}\n")

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends the reading as Ctrl-C does
    try:
        plan = read_plan(settings, say)
        if not json:
            _forget.show(plan, Console(soft_wrap=True), of_instance=instance is not None)
    except KeyboardInterrupt:
        say("stopped: nothing is published")
        raise
    if yes:
        with stop_on_signals() as stop:
            if not publish(settings, plan, say, stop):
                raise typer.Exit(_forget.INTERRUPTED)
    else:
        say("nothing is changed: give --yes to take it out")
    if json:
        sys.stdout.write(json_.dumps(_forget.as_dict(plan, published=yes)) + "\n")


def _chosen(instance: str | None, metric: str | None, given: dict[str, Any]) -> Forget:
    """Return what is to be taken out.

    Raises:
        ConfigError: the options do not go together, or one has no such value.
    """
    from tallystream_aggregator.table.decode import Forget

    if (instance is None) == (metric is None):
        raise ConfigError("--instance, --metric", [instance, metric], "give one of the two")
    for name in ("life",) if instance is None else ("type", "tags"):
        if given[name]:
            other = "--instance" if instance is None else "--metric"
            raise ConfigError(f"--{name.rstrip('s')}", given[name], f"give it with {other}")
    try:
        return msgspec.convert(given | {"metric": metric}, Forget)
    except msgspec.ValidationError as error:
        raise ConfigError("forget", given | {"metric": metric}, f"correct it: {error}") from error


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError("--tag", text, "give NAME=VALUE, as in site=x")
    return name, value
