"""The options that several commands share."""

from __future__ import annotations

import errno
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from tallystream import config
from tallystream.errors import ConfigError
from tallystream_aggregator.times import parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _writable(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Return `value` if this user can write it or create it. Creates nothing.

    Raises:
        ConfigError: this user can't.
    """
    if value is None:
        return None
    if (problem := unwritable(value)) is not None:
        target, reason = problem
        raise ConfigError(
            param.opts[0],
            str(value),
            f"{target} can't be written ({reason}): allow this user to write there, or name another path",
        )
    return value


def _ready_file(ctx: typer.Context, param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Return `value`, and remove the empty file of an earlier run: a supervisor would take this one for ready.

    Raises:
        ConfigError: this user can't write it or remove it.
    """
    path = _writable(param, value)
    if path is None or not path.is_file() or path.stat().st_size or ctx.resilient_parsing:  # a shell completes the line
        return path
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        problem = f"it is of an earlier run and can't be removed ({error.strerror})"
        remedy = f"{problem}: allow this user to write its folder, or name another path"
        raise ConfigError(param.opts[0], str(path), remedy) from error
    return path


def unwritable(path: Path) -> tuple[Path, str] | None:
    """Return what keeps this user from writing a path, or creating it, with the reason; None if nothing does."""
    path = path.absolute()
    existing = next(one for one in (path, *path.parents) if os.path.exists(one))  # noqa: PTH110 (never raises)
    if existing != path and not existing.is_dir():
        return existing, os.strerror(errno.ENOTDIR)
    # The aggregator also writes files beside its checkpoint.
    for target in (existing, existing.parent) if existing == path and existing.is_dir() else (existing,):
        if not os.access(target, os.W_OK):
            return target, os.strerror(errno.EACCES)
    return None


BootstrapServers = Annotated[
    str,
    typer.Option(
        help="The brokers' addresses, as in host1:9092,host2:9092.",
        envvar="TALLYSTREAM_BOOTSTRAP_SERVERS",
        show_envvar=True,
    ),
]
TopicPrefix = Annotated[
    str,
    typer.Option(help="The prefix of the name of every topic and consumer group.", envvar="TALLYSTREAM_TOPIC_PREFIX"),
]
Checkpoint = Annotated[
    Path,
    typer.Option(
        help="Spark's checkpoint directory, with the state of the table.", file_okay=False, callback=_writable
    ),
]
LocalServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        help="The brokers' addresses; by default that of the local system in this folder, or localhost:9092.",
        envvar="TALLYSTREAM_BOOTSTRAP_SERVERS",
        show_envvar=True,
    ),
]
LocalStore = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="local:PATH or influxdb:URL; by default that of the local system in this folder.",
        envvar="TALLYSTREAM_STORE",
        show_envvar=True,
    ),
]
Watch = Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")]
Every = Annotated[float, typer.Option(help="Seconds between two refreshes of --watch.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of a table.")]
At = Annotated[
    str | None, typer.Option(help="Show the state at this time in the past, in UTC, as in 2026-11-20T03:12.")
]
Store = Annotated[str, typer.Option(help="local:PATH or influxdb:URL.", envvar="TALLYSTREAM_STORE", show_envvar=True)]
AnyStore = Annotated[
    str,
    typer.Option(
        help="local:PATH, influxdb:URL, otlp:URL or prometheus:[HOST:]PORT.",
        envvar="TALLYSTREAM_STORE",
        show_envvar=True,
    ),
]
RetentionDays = Annotated[float, typer.Option(help="Days to keep what it writes to the local store; 0 keeps all.")]
Rows = Annotated[
    bool,
    typer.Option("--rows", help="Also ship the values of each instance: a series for each metric of each instance."),
]
Kafka = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="A librdkafka option, repeatable; put secrets in the environment, as in TALLYSTREAM_KAFKA_SASL_PASSWORD.",
    ),
]
OtlpTopic = Annotated[
    list[str] | None,
    typer.Option(
        "--otlp-topic",
        metavar="TOPIC",
        help="A topic of OpenTelemetry metrics (OTLP) to read beside metrics; repeatable.",
    ),
]
Shards = Annotated[
    int | None, typer.Option(help="The number of shards that a new table is split into, by instance; 1 by default.")
]
DropTag = Annotated[
    list[str] | None,
    typer.Option(
        "--drop-tag",
        metavar="TAG",
        help="A tag that the sums do not have, such as pod; repeatable. By default they have all.",
    ),
]
KeepTags = Annotated[
    str | None,
    typer.Option(help="The only tags that the sums have, as in region,topic; not together with --drop-tag."),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="Spark's master URL; by default this machine runs as many tasks as the table has loops. Under "
        "spark-submit, its --master applies."
    ),
]
DriverMemory = Annotated[str, typer.Option(help="The heap size of Spark's driver.")]
ReadyFile = Annotated[
    Path | None,
    typer.Option(help="A file: removed at the start, created when ready.", callback=_ready_file),
]
HttpPort = Annotated[
    int | None, typer.Option(help="Serve /metrics, /healthz and /readyz on this port; 0 selects a free port.")
]
HttpAddress = Annotated[str, typer.Option(help="The address of --http-port; it has no password.")]
NoOwnMetrics = Annotated[
    bool,
    typer.Option(
        "--no-own-metrics",
        help="Do not report the command's internal metrics to the topic metrics.",
        envvar="TALLYSTREAM_NO_OWN_METRICS",
    ),
]
Window = Annotated[float, typer.Option(help="The sliding window of the status, in seconds.")]
StopAfter = Annotated[
    float | None, typer.Option(help="Seconds without progress until STALL or STOP; half the window by default.")
]
AllowedLag = Annotated[int, typer.Option(help="The lag, in records, up to which a group is not lagging.")]
WarnAge = Annotated[
    float, typer.Option(help="A partition is late when its oldest unconsumed record is older than this, in seconds.")
]
ErrAge = Annotated[
    float | None, typer.Option(help="ERR when the oldest unconsumed record is older than this, in seconds.")
]
Data = Annotated[Path, typer.Option(help="The folder with all data of the local system.", file_okay=False)]


MAX_PORT = 65_535
MAX_SENTENCE = 10_000
"""The number of characters of a command's first sentence in the help, so that none is cut."""


class Group(TyperGroup):
    """A group of commands whose help has the whole first sentence of each command, at any width of the terminal."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, command.get_short_help_str(MAX_SENTENCE)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Sections(TyperCommand):
    """A command whose help has its options in sections: title → the parameters of the options. --help is the last."""

    sections: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options by section."""
        params = {param.name: param for param in self.get_params(ctx)}
        for title, names in {**self.sections, "Help": ("help",)}.items():
            with formatter.section(title):
                formatter.write_dl([row for name in names if (row := params[name].get_help_record(ctx)) is not None])


class GroupWithDefault(Group):
    """A group of commands whose default is `show`: `lag orders` means `lag show orders`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of `show` after the commands, because they can be given without its name."""
        super().format_options(ctx, formatter)
        params = self.commands["show"].params
        with formatter.section("Options of show, the default command"):
            formatter.write_dl([row for one in params if (row := one.get_help_record(ctx)) is not None])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `show` if the first argument is neither a command nor --help."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["show", *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


def at_ms(at: str | None) -> int | None:
    """Return the time of --at as epoch milliseconds; without an offset from UTC it is in UTC. None: now.

    Raises:
        ConfigError: `at` is no ISO 8601 time, or not in the years 1970 to 2261.
    """
    try:
        return None if at is None else parse_time_ms(at)
    except ValueError as error:
        raise ConfigError("--at", at, "give a time in UTC, as in 2026-11-20T03:12") from error


def whole_ms(option: str, number: float, unit_ms: int) -> int:
    """Return a number of units as whole milliseconds.

    Raises:
        ConfigError: it is not a number, or infinite in milliseconds.
    """
    try:
        return int(number * unit_ms)
    except (ValueError, OverflowError) as error:
        raise ConfigError(option, number, "give a number that is finite in milliseconds") from error


def kafka_options(given: Iterable[str] | None, env: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's options from the environment and from `given`, each KEY=VALUE, which take precedence.

    Raises:
        ConfigError: one of `given` is not KEY=VALUE. The message does not contain it, as it may be a secret.
    """
    options = config.kafka_options(env)
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError("--kafka", "***", "give KEY=VALUE, as in security.protocol=SSL")
        options[key] = value
    return options


def require_spark() -> None:
    """Check that PySpark and Java are installed.

    Raises:
        ConfigError: one of them is missing, or Spark does not support the Java version.
    """
    if find_spec("pyspark") is None:
        raise ConfigError("pyspark", "not installed", "install it with tallystream-cli[spark], and Java 17 or 21")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # unset unless spark-submit has started Java
        from tallystream_aggregator.java import version

        version()


def parse_partitions(text: str | None) -> tuple[int, ...] | None:
    """Return the partitions in a text such as "0,2"; None for None.

    Raises:
        ConfigError: the text is not a list of whole numbers.
    """
    if text is None:
        return None
    try:
        return tuple(sorted({int(number) for number in text.split(",")}))
    except ValueError as error:
        raise ConfigError("--partitions", text, "give the numbers of partitions, as in 0,2") from error
