"""`top`, `sums`, `instances` and `compare`: what is in the store, in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tallystream_cli import options as o
from tallystream_cli.local import discovery

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_dashboards.terminal.show import TableSettings


def show_table(settings: Callable[..., TableSettings], store: str | None, at: str | None, **options: Any) -> NoReturn:
    """Show a table from the store, or that of the local system, at a time in the past or now. Exit with its code."""
    from tallystream_dashboards.terminal.show import show

    texts = {name: _utf_8(value) for name, value in options.items()}
    raise typer.Exit(show(settings(store=discovery.readable_store(store), at_ms=o.at_ms(at), **texts)))


def _utf_8(value: Any) -> Any:
    """Return a value with escapes for the bytes of its texts that are not UTF-8, in which a store has all names."""
    if isinstance(value, tuple):
        return tuple(map(_utf_8, value))
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def top(
    *,
    store: o.LocalStore = None,
    every: Annotated[float, typer.Option(help="Seconds between two refreshes.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one screen and end, as without a terminal.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a screen, and end.")] = False,
) -> None:
    """Show, refreshed in place, whether everything is well, the worst groups, and the sums with the highest rate.

    It ends with Ctrl-C or SIGTERM. Exit code: 0 everything is well, 1 something is not, 3 that is not known.
    """
    from tallystream_dashboards.terminal.top import TopSettings

    watch = sys.stdout.isatty() and not once and not json
    show_table(TopSettings, store, None, watch=watch, json=json, every_s=every)


def sums(
    pattern: Annotated[
        str | None,
        typer.Argument(help="Show the names that match this shell pattern; by default all but Tallystream's own."),
    ] = None,
    *,
    store: o.LocalStore = None,
    app: Annotated[str | None, typer.Option(help="Show only the sums of this app.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Show Tallystream's own metrics, too.")] = False,
    watch: o.Watch = False,
    every: o.Every = 2.0,
    json: o.JsonLines = False,
    at: o.At = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait until there is a sum to show.")] = 0.0,
) -> None:
    """Show the sums from the store: value, rate, living instances, time since the last change.

    Exit code: 0 there are sums, 3 none is known.
    """
    from tallystream_dashboards.terminal.sums import SumsSettings

    chosen = {"pattern": pattern, "app": app, "all": all_, "wait_s": wait}
    show_table(SumsSettings, store, at, watch=watch, json=json, every_s=every, **chosen)


def instances(
    app: Annotated[str | None, typer.Argument(help="The name of the app; by default all apps are listed.")] = None,
    *,
    store: o.LocalStore = None,
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
    """Show the instances of an app from the store: living, ended or silent since when, and the last report.

    Without an app, show the numbers of each app. Exit code: 0 there are instances, 3 none is known.
    """
    from tallystream_dashboards.terminal.instances import InstancesSettings

    chosen = {"app": app, "metric": metric, "range": range_}
    show_table(InstancesSettings, store, at, watch=watch, json=json, every_s=every, **chosen)


def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="The counter of what was sent, if known, and that of what was processed; or APP/NAME."),
    ] = None,
    *,
    group: Annotated[
        str | None, typer.Option(help="The consumer group. Without names, its offsets alone are compared.")
    ] = None,
    app: Annotated[str | None, typer.Option(help="Without names, show only the consumers of this app.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only what was processed with this tag, as in query=scores; repeatable.")
    ] = None,
    auto_commit: Annotated[
        bool, typer.Option("--auto-commit", help="The consumers commit offsets before they count the records.")
    ] = False,
    store: o.LocalStore = None,
    range_: Annotated[
        str,
        typer.Option(
            "--range", help="How far back a moment without changes is looked for: 5m, 15m, 1h, 6h, 24h or 7d."
        ),
    ] = "1h",
    watch: o.Watch = False,
    every: o.Every = 2.0,
    json: o.JsonLines = False,
    at: o.At = None,
) -> None:
    """Compare what was sent with what was processed: records that were lost, are in flight, and were processed twice.

    Without names, show each consumer that counts what it takes, and what was sent to it.

    Exit code: 0 none is known to be lost or processed twice, 1 some are, 3 that is not known. Without SENT nothing is
    known to be lost.
    """
    from tallystream_dashboards.terminal.compare import CompareSettings

    chosen = {"names": tuple(names or ()), "group": group, "app": app, "tags": tuple(tag or ()), "range": range_}
    show_table(CompareSettings, store, at, commits_first=auto_commit, watch=watch, json=json, every_s=every, **chosen)
