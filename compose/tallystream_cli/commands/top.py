"""`top`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tallystream_cli import options as o  # noqa: TC001 (typer reads the annotations)
from tallystream_cli.local import discovery


def top(
    *,
    store: o.LocalStore = None,
    org: o.Org = None,
    bucket: o.Bucket = None,
    every: Annotated[float, typer.Option(help="Seconds between two refreshes.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one screen and end, as without a terminal.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a screen, and end.")] = False,
) -> None:
    """Show, refreshed in place, whether everything is well, the worst groups, and the sums with the highest rate.

    It ends with Ctrl-C or SIGTERM. Exit code: 0, or 3 if the store can't be read.
    """
    from tallystream_dashboards.terminal.show import show
    from tallystream_dashboards.terminal.top import TopSettings

    watch = sys.stdout.isatty() and not once and not json
    chosen = discovery.readable_store(store, org, bucket)
    raise typer.Exit(show(TopSettings(store=chosen, watch=watch, json=json, every_s=every)))
