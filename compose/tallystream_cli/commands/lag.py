"""`page`, `alert`, `lag show` and `lag collect`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tallystream_cli import options as o
from tallystream_cli.commands.terminal import show_table
from tallystream_cli.local import discovery


class CollectCommand(o.Sections):
    """The sections of the help of `lag collect`."""

    sections = {  # noqa: RUF012 (a constant of the class)
        "Store": ("store", "retention_days", "full_hours"),
        "Groups and rounds": ("interval", "include", "exclude", "assigned_only", "ready_file"),
        "Status": ("window", "stop_after", "allowed_lag", "warn_age", "err_age"),
        "Kafka and security": ("bootstrap_servers", "kafka"),
        "For programs": ("http_port", "http_address"),
    }


def page(
    *,
    store: o.Store,
    port: Annotated[int, typer.Option(help="The port to listen on; 0 selects a free port.")] = 8501,
    address: Annotated[
        str, typer.Option(help="The address to listen on; TALLYSTREAM_PAGE_PASSWORD sets a password.")
    ] = "127.0.0.1",
    refresh: Annotated[float, typer.Option(help="Seconds between two refreshes.")] = 2.0,
    ready_file: o.ReadyFile = None,
) -> None:
    """Show the sums, the living instances and the lag, on a page that refreshes by itself."""
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_dashboards.page import PageSettings, run
    from tallystream_dashboards.page.server import password

    settings = PageSettings(
        store=StoreSettings.parse(store).require_readable(),
        port=port,
        address=address,
        refresh_s=refresh,
        password=password.from_environment(),
        ready_file=ready_file,
    )
    discovery.require_existing(settings.store)
    raise typer.Exit(run(settings))


def alert(
    *,
    webhook: Annotated[
        str, typer.Option(metavar="URL", help="The URL to post to, as in http://alertmanager:9093/api/v2/alerts.")
    ],
    store: o.LocalStore = None,
    every: Annotated[float, typer.Option(help="Seconds between two posts, 1 to 120.")] = 30.0,
    once: Annotated[bool, typer.Option("--once", help="Post once and end.")] = False,
    threshold: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="A threshold of the alert rules; repeatable.")
    ] = None,
) -> None:
    """Post the alerts to an Alertmanager, by the state in the store, without Grafana.

    Exit code: 0 after SIGTERM or Ctrl-C. With --once: 0 the alerts are posted, or there are none; 1 they are not; 3
    they are not known.
    """
    from tallystream_dashboards.alerts import AlertSettings, run
    from tallystream_dashboards.grafana.settings import Thresholds

    settings = AlertSettings(
        store=discovery.readable_store(store),
        webhook=webhook,
        every_s=every,
        once=once,
        thresholds=Thresholds.parse(threshold or ()),
    )
    raise typer.Exit(run(settings))


def lag_show(
    group: Annotated[
        str | None, typer.Argument(help="Show the partitions of this group; by default all groups.")
    ] = None,
    *,
    store: o.LocalStore = None,
    watch: o.Watch = False,
    every: o.Every = 2.0,
    json: o.JsonLines = False,
    at: o.At = None,
) -> None:
    """Show the lag from the store. Exit code: 0 OK, 1 WARN, 2 ERR, 3 unknown, the worst of all groups."""
    from tallystream_dashboards.terminal.lag import ShowSettings

    show_table(ShowSettings, store, at, group=group, watch=watch, json=json, every_s=every)


def lag_collect(
    *,
    store: o.Store,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    kafka: o.Kafka = None,
    retention_days: o.RetentionDays = 30.0,
    interval: Annotated[float, typer.Option(help="Seconds between two rounds, 1 to 60.")] = 2.0,
    include: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="A shell pattern of groups to collect; repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="A shell pattern of groups to leave out; repeatable."),
    ] = None,
    assigned_only: Annotated[
        bool,
        typer.Option(
            "--assigned-only", help="Leave out topics of which no member has a partition, if members have others."
        ),
    ] = False,
    window: o.Window = 120.0,
    stop_after: o.StopAfter = None,
    allowed_lag: o.AllowedLag = 0,
    warn_age: o.WarnAge = 30.0,
    err_age: o.ErrAge = None,
    full_hours: Annotated[
        float,
        typer.Option(help="Hours to keep every round; older lag keeps one round in five minutes, 0 keeps every round."),
    ] = 24.0,
    http_port: Annotated[
        int | None,
        typer.Option(help="Serve /metrics, /v1/…, /healthz and /readyz on this port; 0 selects a free port."),
    ] = None,
    http_address: o.HttpAddress = "127.0.0.1",
    ready_file: o.ReadyFile = None,
) -> None:
    """Collect the lag of every consumer group at an interval, and write it to the store."""
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_dashboards.data.consumers import read_record_points
    from tallystream_dashboards.lag.collector.collector import CollectSettings, run
    from tallystream_dashboards.lag.status import Rules
    from tallystream_dashboards.store_api import routes

    settings = CollectSettings(
        store=StoreSettings.parse(store, retention_days=retention_days).require_readable(),
        bootstrap_servers=bootstrap_servers,
        interval=interval,
        include=tuple(include or ("*",)),
        exclude=tuple(exclude or ()),
        rules=Rules(window, allowed_lag, stop_after, warn_age, err_age),
        assigned_only=assigned_only,
        full_hours=full_hours,
        http_port=http_port,
        http_address=http_address,
        options=o.kafka_options(kafka, os.environ),
        ready_file=ready_file,
    )
    raise typer.Exit(run(settings, routes(settings.store), read_record_points))
