"""The `tallystream` command line: its commands, and its exit codes."""

from __future__ import annotations

import ctypes
import io
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Literal

import typer
from typer.exceptions import TyperException

from tallystream.errors import ConfigError, TallystreamError
from tallystream_cli import logs
from tallystream_cli import options as o
from tallystream_cli.commands import (
    dashboards,
    doctor,
    forget,
    lag,
    system,
    table,
    terminal,
    verify,
)
from tallystream_dashboards.exit_codes import BAD, INTERRUPTED, UNKNOWN, UNUSABLE, NotKnownError

app = typer.Typer(
    name="tallystream",
    cls=o.Group,
    help="Exact sums over all instances of a streaming application, and the lag of every consumer.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
lag_app = typer.Typer(
    help="The lag of every consumer group: `lag [GROUP]` shows it, `lag collect` keeps its history.",
    cls=o.GroupWithDefault,
    rich_markup_mode=None,
)
app.add_typer(lag_app, name="lag")
dashboards_app = typer.Typer(
    help="Grafana's dashboards and alert rules: `generate` writes them as files, `push` creates them in a server.",
    cls=o.Group,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(dashboards_app, name="dashboards")


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"tallystream {version('tallystream-cli')}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(
            help="The level: debug, info, warning or error.", envvar="TALLYSTREAM_LOG_LEVEL", case_sensitive=False
        ),
    ] = "info",
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option(help="The format: text, or json with one object per line.", envvar=logs.FORMAT_ENV),
    ] = "text",
    _version_requested: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    logs.configure(log_level, log_format)


app.command(cls=table.AggregateCommand)(table.aggregate)
app.command()(table.rebuild)
app.command()(forget.forget)
app.command(cls=table.ShipCommand)(table.ship)
app.command()(verify.verify)
app.command()(terminal.top)
app.command()(terminal.sums)
app.command()(terminal.instances)
app.command()(terminal.compare)
app.command()(lag.page)
app.command()(lag.alert)
lag_app.command("show")(lag.lag_show)
lag_app.command("collect", cls=lag.CollectCommand)(lag.lag_collect)
dashboards_app.command("generate")(dashboards.generate)
dashboards_app.command("push", cls=dashboards.PushCommand)(dashboards.push)
app.command()(system.up)
app.command()(system.down)
app.command()(system.status)
app.command()(system.demo)
app.command()(doctor.doctor)


_M_ARENA_MAX = -8  # malloc.h of glibc


def _limit_heaps() -> None:
    """Let glibc divide allocations among two heaps, as the processes of Spark do (`spark/session.py`).

    By default it has eight for each processor. Each keeps what it had at most, so a process with many threads grows for
    days. Other C libraries have no such heaps.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def main() -> None:
    """Run the command line. A failure, and a setting that can't be used, are one sentence each.

    Characters that the encoding of standard output lacks are written as escapes.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    _limit_heaps()
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except TyperException as error:
        sys.exit(_print_error(_usage(error), error.exit_code))
    except ConfigError as error:
        sys.exit(_print_error(str(error), UNUSABLE))
    except NotKnownError as error:
        sys.exit(_print_error(str(error), UNKNOWN))
    except TallystreamError as error:
        sys.exit(_print_error(str(error), BAD))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _usage(error: TyperException) -> str:
    """Return what is wrong with the command line as one sentence, or the help if no command is given."""
    message, context = error.format_message(), getattr(error, "ctx", None)
    if "\n" in message or context is None:
        return message
    message = message.removesuffix(".")
    end = "" if message.endswith("?") else ";"
    return f"{context.command_path}: {message}{end} {context.command_path} --help lists the options."


def _print_error(sentence: str, code: int) -> int:
    sys.stderr.write(f"{logs.error_line(sentence)}\n")
    return code


if __name__ == "__main__":
    main()
