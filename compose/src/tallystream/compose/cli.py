"""The `tallystream` command. Each command is thin: options, settings, run; heavy imports wait until needed."""

from __future__ import annotations

import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from tallystream.compose import _logs
from tallystream.compose import _options as o
from tallystream.reporter.errors import ConfigError, TallystreamError

app = typer.Typer(
    name="tallystream",
    help="Exact sums over all instances of a streaming application, and the lag of every consumer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
lag_app = typer.Typer(
    help="The lag of every consumer group: `lag [GROUP]` shows it, `lag collect` keeps its history.",
    cls=o.WithDefault,
    rich_markup_mode=None,
)
app.add_typer(lag_app, name="lag")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tallystream {version('tallystream-compose')}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    log_level: Annotated[
        str, typer.Option(help="debug, info, warning or error.", envvar="TALLYSTREAM_LOG_LEVEL")
    ] = "info",
    log_format: Annotated[
        str, typer.Option(help="text, or json for one object a line.", envvar=_logs.FORMAT_ENV)
    ] = "text",
    _show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say it and exit.")
    ] = False,
) -> None:
    _logs.set_up(log_level, log_format)


@app.command()
def aggregate(
    *,
    checkpoint: o.Checkpoint,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    topic_pattern: Annotated[
        str | None,
        typer.Option(help="A regular expression of whole names: read every topic that it matches, not metrics alone."),
    ] = None,
    partitions: Annotated[
        str | None, typer.Option(help="Read these partitions of metrics alone, as in 0,2; added ones are left out.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Where a new table begins: earliest, latest, group, a time in UTC, ledger:TIME, or offsets as JSON; "
            "earliest if not given and there never was a table.",
        ),
    ] = None,
    accept_partial: Annotated[
        bool, typer.Option("--accept-partial", help="Let a new table begin in the middle of the topic.")
    ] = False,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait while another aggregator writes, and take over when it ends.")
    ] = False,
    catch_up: Annotated[bool, typer.Option("--catch-up", help="Exit when everything that is there is summed.")] = False,
    on_data_loss: Annotated[
        str, typer.Option(help="fail or continue when records that were not read have been deleted.")
    ] = "fail",
    max_records: o.MaxRecords = 50_000,
    trigger_ms: o.TriggerMs = 500,
    plan: Annotated[
        str, typer.Option(help="live, backlog, or auto: by how far it is behind, changing while it runs.")
    ] = "auto",
    fetch_tries: o.FetchTries = 5,
    fetch_pause_ms: o.FetchPauseMs = 1000,
    fetch_timeout_ms: o.FetchTimeoutMs = 120_000,
    retire_after_h: Annotated[
        float, typer.Option(help="Hours after which a life that was not heard from is retired.")
    ] = 24.0,
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
    from tallystream.aggregator.health import HealthSettings
    from tallystream.aggregator.selection import parse_partitions
    from tallystream.aggregator.spark.aggregate import AggregateSettings, run
    from tallystream.aggregator.spark.kafka import Fetch
    from tallystream.aggregator.spark.plans import Plan
    from tallystream.aggregator.table.table import TableSettings

    settings = AggregateSettings(
        bootstrap_servers,
        checkpoint,
        topic_prefix=topic_prefix,
        topic_pattern=topic_pattern,
        partitions=parse_partitions(partitions),
        kafka=o.kafka_options(kafka, os.environ),
        max_records_per_trigger=max_records,
        trigger_ms=trigger_ms,
        fetch=Fetch(fetch_tries, fetch_pause_ms, fetch_timeout_ms),
        plan=None if o.one_of("--plan", plan, "auto", *Plan) == "auto" else Plan(plan),
        start=start,
        accept_partial=accept_partial,
        standby=standby,
        catch_up=catch_up,
        on_data_loss=o.one_of("--on-data-loss", on_data_loss, "fail", "continue"),  # type: ignore[arg-type]  # just so
        table=TableSettings(retire_after_ms=int(retire_after_h * 3_600_000)),
        health=HealthSettings(http_port, http_address, own_metrics=not no_own_metrics),
        ready_file=ready_file,
        master=master,
        driver_memory=driver_memory,
        shards=shards,
        state_partitions=state_partitions,
    )
    raise typer.Exit(run(settings))


@app.command()
def rebuild(
    *,
    checkpoint: o.Checkpoint,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    accept_partial: Annotated[
        bool, typer.Option("--accept-partial", help="Go on though something was deleted that the table lacks.")
    ] = False,
    shards: Annotated[
        int | None, typer.Option(help="Cut the table into more shards of instances; those that it has if not given.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(help="Partitions of Spark's state that the shards are spread over; as many if not given."),
    ] = None,
) -> None:
    """Make a lost table again from metrics-table, as the beginning of a new checkpoint."""
    from tallystream.aggregator.rebuild import RebuildSettings, run

    settings = RebuildSettings(
        bootstrap_servers,
        checkpoint,
        topic_prefix=topic_prefix,
        kafka=o.kafka_options(kafka, os.environ),
        accept_partial=accept_partial,
        shards=shards,
        partitions=partitions,
    )
    raise typer.Exit(run(settings, typer.echo))


@app.command()
def ship(
    *,
    checkpoint: o.Checkpoint,
    store: o.Store,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    org: o.Org = None,
    bucket: o.Bucket = None,
    retention_days: o.RetentionDays = 30.0,
    events: Annotated[
        bool, typer.Option("--events/--no-events", help="Ship metrics-events too: what annotates a graph.")
    ] = True,
    rows: Annotated[
        bool, typer.Option("--rows", help="Ship what each instance says, too: a series for each of them.")
    ] = False,
    max_records: o.MaxRecords = 20_000,
    trigger_ms: o.TriggerMs = 500,
    fetch_tries: o.FetchTries = 5,
    fetch_pause_ms: o.FetchPauseMs = 1000,
    fetch_timeout_ms: o.FetchTimeoutMs = 120_000,
    master: o.Master = "local[1]",
    driver_memory: o.DriverMemory = "512m",
    http_port: o.HttpPort = None,
    http_address: o.HttpAddress = "127.0.0.1",
    no_own_metrics: o.NoOwnMetrics = False,
    ready_file: o.ReadyFile = None,
) -> None:
    """Write the sums of metrics-agg, and events, to InfluxDB or to the local store, in order."""
    from tallystream.aggregator.health import HealthSettings
    from tallystream.aggregator.sinks.stores import StoreSettings
    from tallystream.aggregator.spark.kafka import Fetch
    from tallystream.aggregator.spark.ship import ShipSettings, run

    settings = ShipSettings(
        bootstrap_servers,
        checkpoint,
        StoreSettings.parse(store, org=org, bucket=bucket, retention_days=retention_days),
        topic_prefix=topic_prefix,
        events=events,
        rows=rows,
        kafka=o.kafka_options(kafka, os.environ),
        max_records_per_trigger=max_records,
        trigger_ms=trigger_ms,
        fetch=Fetch(fetch_tries, fetch_pause_ms, fetch_timeout_ms),
        health=HealthSettings(http_port, http_address, own_metrics=not no_own_metrics),
        ready_file=ready_file,
        master=master,
        driver_memory=driver_memory,
    )
    raise typer.Exit(run(settings))


@app.command()
def verify(
    *,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", help="Compare every sum after this moment, in UTC, or ledger:TIME; the newest if not given."
        ),
    ] = None,
    to: Annotated[str | None, typer.Option(help="Compare up to this moment, in UTC, or ledger:TIME.")] = None,
    began: Annotated[
        str | None, typer.Option(help="Where a table began with --accept-partial: offsets as JSON.")
    ] = None,
    retire_after_h: Annotated[float, typer.Option(help="As the aggregator was told.")] = 24.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    most: Annotated[int, typer.Option(help="How many differences the table shows.")] = 50,
) -> None:
    """Replay the topic metrics with independent code and compare every sum. Exit code: 0 all agree, 1 differences."""
    from tallystream.aggregator.verify.job import VerifySettings
    from tallystream.aggregator.verify.lives import Settings
    from tallystream.compose import _verify

    settings = VerifySettings(
        bootstrap_servers,
        topic_prefix=topic_prefix,
        kafka=o.kafka_options(kafka, os.environ),
        since=since,
        to=to,
        began=began,
        rules=Settings(retire_after_ms=int(retire_after_h * 3_600_000)),
    )
    raise typer.Exit(_verify.verify(settings, as_json=json, most=most))


@app.command()
def replay(
    *,
    store: o.Store,
    start: Annotated[str, typer.Option("--from", help="The period's beginning, in UTC, as in 2026-11-20T03:12.")],
    end: Annotated[str | None, typer.Option("--to", help="The period's end, in UTC; now if not given.")] = None,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    org: o.Org = None,
    bucket: o.Bucket = None,
    retention_days: o.RetentionDays = 30.0,
) -> None:
    """Write the points of a past period to a store again: the same points, of whole batches."""
    from tallystream.aggregator.replay.job import ReplaySettings
    from tallystream.aggregator.sinks.stores import StoreSettings
    from tallystream.compose._replay import replay as run

    from_ms = o.moment("--from", start)
    to_ms = int(time.time() * 1000) if end is None else o.moment("--to", end)
    settings = ReplaySettings(
        bootstrap_servers,
        StoreSettings.parse(store, org=org, bucket=bucket, retention_days=retention_days),
        from_ms,
        to_ms,
        topic_prefix=topic_prefix,
        kafka=o.kafka_options(kafka, os.environ),
    )
    raise typer.Exit(run(settings))


@app.command()
def page(
    *,
    store: o.Store,
    org: o.Org = None,
    bucket: o.Bucket = None,
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.")] = 8501,
    address: Annotated[
        str, typer.Option(help="The address to listen on; TALLYSTREAM_PAGE_PASSWORD sets a password.")
    ] = "127.0.0.1",
    refresh: Annotated[float, typer.Option(help="Seconds from one refresh to the next.")] = 2.0,
    ready_file: o.ReadyFile = None,
) -> None:
    """Show the sums, the living instances and the lag, on a page that refreshes by itself."""
    from tallystream.aggregator.sinks.stores import StoreSettings
    from tallystream.dashboards.page import PageSettings, password, run

    settings = PageSettings(
        store=StoreSettings.parse(store, org=org, bucket=bucket),
        port=port,
        address=address,
        refresh_s=refresh,
        password=password.from_environment(),
        ready_file=ready_file,
    )
    raise typer.Exit(run(settings))


@lag_app.command("show")
def lag_show(
    group: Annotated[str | None, typer.Argument(help="One group, by partition; all groups if not given.")] = None,
    *,
    store: o.Store,
    org: o.Org = None,
    bucket: o.Bucket = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks of --watch.")] = 2.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a table.")] = False,
    at: Annotated[str | None, typer.Option(help="A moment of the past, in UTC, as in 2026-11-20T03:12.")] = None,
    window: o.Window = None,
    stop_after: o.StopAfter = None,
    allowed_lag: o.AllowedLag = None,
    warn_age: o.WarnAge = None,
    err_age: o.ErrAge = None,
) -> None:
    """Show the lag from the store. Exit code: 0 OK, 1 WARN, 2 ERR, 3 unknown, the worst of all groups."""
    from tallystream.aggregator.sinks.stores import StoreSettings
    from tallystream.dashboards.lag.show import ShowSettings, run

    settings = ShowSettings(
        store=StoreSettings.parse(store, org=org, bucket=bucket),
        group=group,
        watch=watch,
        json=json,
        at_ms=None if at is None else o.moment("--at", at),
        every_s=every,
        rules=o.rules(window, stop_after, allowed_lag, warn_age, err_age),
    )
    raise typer.Exit(run(settings))


@lag_app.command("collect")
def lag_collect(
    *,
    store: o.Store,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    kafka: o.Kafka = None,
    org: o.Org = None,
    bucket: o.Bucket = None,
    retention_days: o.RetentionDays = 30.0,
    interval: Annotated[float, typer.Option(help="Seconds between two rounds, 1 to 60.")] = 2.0,
    include: Annotated[list[str] | None, typer.Option(help="Shell pattern of groups to watch; repeatable.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Shell pattern of groups to leave out; repeatable.")] = None,
    topic_prefix: o.TopicPrefix = "",
    window: o.Window = None,
    stop_after: o.StopAfter = None,
    allowed_lag: o.AllowedLag = None,
    warn_age: o.WarnAge = None,
    err_age: o.ErrAge = None,
    record_timestamps: Annotated[
        bool, typer.Option("--record-timestamps", help="Read the oldest unconsumed records for their timestamps.")
    ] = False,
    full_hours: Annotated[
        float, typer.Option(help="Older lag keeps one round in five minutes; 0 keeps every round.")
    ] = 24.0,
    http_port: Annotated[
        int | None, typer.Option(help="Serve /metrics, /v1/groups, /healthz and /readyz; 0 takes a free port.")
    ] = None,
    http_address: o.HttpAddress = "127.0.0.1",
    ready_file: o.ReadyFile = None,
) -> None:
    """Ask for the lag of every consumer group at an interval, and keep it in the store."""
    from tallystream.aggregator.sinks.stores import StoreSettings
    from tallystream.dashboards.lag.collect import CollectSettings, run
    from tallystream.dashboards.lag.verdict import Rules

    settings = CollectSettings(
        store=StoreSettings.parse(store, org=org, bucket=bucket, retention_days=retention_days),
        bootstrap_servers=bootstrap_servers,
        interval=interval,
        include=tuple(include or ("*",)),
        exclude=tuple(exclude or ()),
        topic_prefix=topic_prefix,
        rules=o.rules(window, stop_after, allowed_lag, warn_age, err_age) or Rules(),
        record_timestamps=record_timestamps,
        full_hours=full_hours,
        http_port=http_port,
        http_address=http_address,
        options=o.kafka_options(kafka, os.environ),
        ready_file=ready_file,
    )
    raise typer.Exit(run(settings))


@app.command()
def up(
    *,
    data: o.Data = Path(".tallystream"),
    broker_port: Annotated[int, typer.Option(help="The broker's port; 0 takes a free one.")] = 9092,
    page_port: Annotated[int, typer.Option(help="The page's port; 0 takes a free one.")] = 8501,
    store: Annotated[
        str | None,
        typer.Option(help="local:PATH or influxdb:URL; the local store in the data folder if not given."),
    ] = None,
    org: o.Org = None,
    bucket: o.Bucket = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when everything is up.")] = False,
) -> None:
    """Run the local system: broker, aggregator, shipper, lag collector and page; a component that dies is restarted."""
    from tallystream.aggregator.sinks.stores import StoreSettings
    from tallystream.compose.local import running
    from tallystream.compose.local.system import SystemSettings

    parsed = None if store is None else StoreSettings.parse(store, org=org, bucket=bucket)
    settings = SystemSettings(data, broker_port=broker_port, page_port=page_port, store=parsed)
    raise typer.Exit(running.detach(sys.argv[1:], data) if detach else running.foreground(settings))


@app.command()
def down(*, data: o.Data = Path(".tallystream")) -> None:
    """End the local system of a data folder; its data is kept."""
    from tallystream.compose.local import running

    raise typer.Exit(running.down(data))


@app.command()
def status(*, data: o.Data = Path(".tallystream")) -> None:
    """Say what of the local system is up; exit code 0 when all of it is, 1 otherwise."""
    from tallystream.compose.local import running

    raise typer.Exit(running.status(data))


@app.command()
def demo(
    *,
    events: Annotated[
        int | None, typer.Option(help="How many events to send; the whole data set three times over if not given.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer events: under two minutes.")] = False,
    headless: Annotated[bool, typer.Option("--headless", help="Without the page and the lag collector.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Stay up after the table, until Ctrl-C.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="The folder for everything; a temporary one, removed at the end, if not given.")
    ] = None,
    page_port: Annotated[int, typer.Option(help="The page's port; 0 takes a free one.")] = 0,
) -> None:
    """The demonstration: a million real events, two consumers, a kill -9, and sums that agree to the integer."""
    from tallystream.compose.demo.run import DemoSettings, run

    settings = DemoSettings(events=events, quick=quick, headless=headless, keep=keep, data=data, page_port=page_port)
    raise typer.Exit(run(settings))


def main() -> None:
    """Run the command line: a wrong setting is one sentence and exit code 2, a failure one sentence and code 1."""
    try:
        sys.exit(app(standalone_mode=False))
    except TyperException as error:
        sys.exit(_said(_usage(error), error.exit_code))
    except ConfigError as error:
        sys.exit(_said(str(error), 2))
    except TallystreamError as error:
        sys.exit(_said(str(error), 1))
    except KeyboardInterrupt:
        sys.exit(130)


def _usage(error: TyperException) -> str:
    """Return what is wrong with the command line as one sentence; the help itself, where no command was given."""
    message, context = error.format_message(), getattr(error, "ctx", None)
    if "\n" in message or context is None:
        return message
    return f"{context.command_path}: {message.rstrip('.')}; {context.command_path} --help lists the options."


def _said(sentence: str, code: int) -> int:
    sys.stderr.write(f"{_logs.last_words(sentence)}\n")
    return code


if __name__ == "__main__":
    main()
