"""The commands of the whole system on one machine: up, down, status, and the demonstration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tallystream_cli import options as o


def up(
    *,
    data: o.Data = Path(".tallystream"),
    broker_port: Annotated[int, typer.Option(help="The broker's port; 0 selects a free port.")] = 9092,
    page_port: Annotated[int, typer.Option(help="The page's port; 0 selects a free port.")] = 8501,
    store: Annotated[
        str | None,
        typer.Option(help="local:PATH or influxdb:URL; by default the local store in the data folder."),
    ] = None,
    org: o.Org = None,
    bucket: o.Bucket = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when everything is up.")] = False,
) -> None:
    """Run the local system: broker, aggregator, shipper, lag collector and page; a component that dies is restarted."""
    o.need_spark()
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.local import commands
    from tallystream_cli.local.system import SystemSettings

    parsed = None if store is None else StoreSettings.parse(store, org=org, bucket=bucket).require_readable()
    settings = SystemSettings(data, broker_port=broker_port, page_port=page_port, store=parsed)
    raise typer.Exit(commands.detach(sys.argv[1:], data) if detach else commands.foreground(settings))


def down(*, data: o.Data = Path(".tallystream")) -> None:
    """End the local system of a data folder; its data is kept."""
    from tallystream_cli.local import commands

    raise typer.Exit(commands.down(data))


def status(
    *,
    data: o.Data = Path(".tallystream"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Show which components of the local system are up; exit code 0 if all are, 1 otherwise."""
    from tallystream_cli.local import commands

    raise typer.Exit(commands.status(data, as_json=json))


def demo(
    *,
    events: Annotated[
        int | None, typer.Option(help="The number of events to send; by default the whole data set three times.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Send fewer events; takes half a minute.")] = False,
    headless: Annotated[bool, typer.Option("--headless", help="Run without the page and the lag collector.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep running after the comparison, until Ctrl-C.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="The folder for all data; by default a temporary one, removed at the end.")
    ] = None,
    page_port: Annotated[int, typer.Option(help="The page's port; 0 selects a free port.")] = 0,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of tables; progress goes to standard error.")
    ] = False,
) -> None:
    """The demonstration: a million real events, two consumers, a kill -9, and sums that agree to the integer."""
    o.need_spark()
    from tallystream_cli.demo.run import DemoSettings, run

    settings = DemoSettings(
        events=events, quick=quick, headless=headless, keep=keep, data=data, page_port=page_port, as_json=json
    )
    raise typer.Exit(run(settings))
