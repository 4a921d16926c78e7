"""`instances` and `twice`."""

from __future__ import annotations

from typing import Annotated

import typer

from tallystream_cli import options as o
from tallystream_cli.local import discovery


def instances(
    app: o.App,
    *,
    store: o.LocalStore = None,
    org: o.Org = None,
    bucket: o.Bucket = None,
    metric: Annotated[str | None, typer.Option(help="Show the values of this metric, too.")] = None,
    range_: Annotated[
        str,
        typer.Option("--range", help="Show the instances that reported in this period: 5m, 15m, 1h, 6h, 24h or 7d."),
    ] = "1h",
    watch: o.Watch = False,
    every: o.Every = 2.0,
    json: o.JsonLines = False,
    at: o.At = None,
) -> None:
    """Show the instances of an app from the store: living or silent since when, the last report, lives and restarts.

    Exit code: 0 there are instances, 1 there are none, 3 the store can't be read.
    """
    from tallystream_dashboards.terminal.instances import InstancesSettings
    from tallystream_dashboards.terminal.show import show

    settings = InstancesSettings(
        store=discovery.readable_store(store, org, bucket),
        app=app,
        metric=metric,
        range=range_,
        watch=watch,
        json=json,
        at_ms=o.at_ms(at),
        every_s=every,
    )
    raise typer.Exit(show(settings))


def twice(
    app: o.App,
    *,
    store: o.LocalStore = None,
    org: o.Org = None,
    bucket: o.Bucket = None,
    watch: o.Watch = False,
    every: o.Every = 2.0,
    json: o.JsonLines = False,
    at: o.At = None,
) -> None:
    """Show how many records of an app were processed twice: the count minus the offsets that the positions cover.

    Exit code: 0 there is a counter with positions, 1 there is none, 3 the store can't be read.
    """
    from tallystream_dashboards.terminal.show import show
    from tallystream_dashboards.terminal.twice import TwiceSettings

    settings = TwiceSettings(
        store=discovery.readable_store(store, org, bucket),
        app=app,
        watch=watch,
        json=json,
        at_ms=o.at_ms(at),
        every_s=every,
    )
    raise typer.Exit(show(settings))
