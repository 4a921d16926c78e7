"""Reporters that write text to a stream, a logger or a file."""

from __future__ import annotations

import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

import msgspec

from tallystream.reporters.local import LocalReporter

if TYPE_CHECKING:
    from tallystream.record import Metric
    from tallystream.registry import MetricRegistry, Reportable
    from tallystream.reporters.filters import Values

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_encoder = msgspec.json.Encoder()


def readable(metric: Metric, values: Values) -> str:
    """Return one readable line: `records.processed{topic=orders} counter count=3`. It has no other line break."""
    tags = ",".join(f"{name}={value}" for name, value in sorted(metric.tags.items()))
    shown = " ".join(f"{name}={_short(value)}" for name, value in values.items())
    text = f"{metric.name}{{{tags}}}" if tags else metric.name
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], f"{text} {metric.type} {shown}".rstrip())


def _short(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class ConsoleReporter(LocalReporter):
    """Prints each snapshot: a line with the time and the app, then one line for each metric.

    Args:
        registry: the registry to report.
        stream: the stream to write to; if None, the current standard output.
        options: the arguments of `LocalReporter` (interval, include, attributes …).
    """

    kind: ClassVar[str] = "console"

    def __init__(self, registry: MetricRegistry | Reportable, *, stream: TextIO | None = None, **options: Any) -> None:
        self._stream = stream
        super().__init__(registry, **options)

    def _write(self, metrics: list[Metric], ts_ms: int) -> int:
        time = datetime.fromtimestamp(ts_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        lines = [readable(metric, self.attributes.values(metric)) for metric in metrics]
        text = "\n".join([f"-- {time} {self.registry.app}", *lines]) + "\n"
        stream = self._stream or sys.stdout
        stream.write(text)
        stream.flush()
        return len(text.encode())


class LoggingReporter(LocalReporter):
    """Logs one line for each metric of a snapshot.

    Args:
        registry: the registry to report.
        logger: the logger, or its name.
        level: the level of the lines.
        options: the arguments of `LocalReporter` (interval, include, attributes …).
    """

    kind: ClassVar[str] = "logging"

    def __init__(
        self,
        registry: MetricRegistry | Reportable,
        *,
        logger: logging.Logger | str = "tallystream.metrics",
        level: int = logging.INFO,
        **options: Any,
    ) -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level = level
        super().__init__(registry, **options)

    def _write(self, metrics: list[Metric], ts_ms: int) -> int:  # noqa: ARG002 - a log line has its own time
        size = 0
        for metric in metrics:
            text = readable(metric, self.attributes.values(metric))
            self._logger.log(self._level, "%s", text)
            size += len(text.encode())
        return size


class JsonLinesReporter(LocalReporter):
    """Appends each snapshot to a file as `{"app", "ts", "metrics": [{"name", "tags", "type", attributes …}]}`.

    The file is opened for each report, so it may be moved at any time. Several processes may append to the same file.
    If its last line is incomplete, for example since the disk was full, the snapshot begins on a new line.

    Args:
        registry: the registry to report.
        path: the file. Its folder must exist.
        options: the arguments of `LocalReporter` (interval, include, attributes …).
    """

    kind: ClassVar[str] = "jsonlines"

    def __init__(self, registry: MetricRegistry | Reportable, *, path: str | os.PathLike[str], **options: Any) -> None:
        self._path = os.path.abspath(path)  # noqa: PTH100 - pathlib is slow to import
        super().__init__(registry, **options)

    def _write(self, metrics: list[Metric], ts_ms: int) -> int:
        rows = [{"name": m.name, "tags": m.tags, "type": m.type, **self.attributes.values(m)} for m in metrics]
        line = _encoder.encode({"app": self.registry.app, "ts": ts_ms, "metrics": rows}) + b"\n"
        data = b"\n" + line if _has_incomplete_line(self._path) else line
        # The buffer has all of it, so it is one write, and lines of several processes do not mix. If that write is
        # short, for example since the disk is full, Python writes the rest or raises OSError.
        with open(self._path, "ab", buffering=len(data) + 1) as file:  # noqa: PTH123 - pathlib is slow to import
            file.write(data)
        return len(data)


def _has_incomplete_line(path: str) -> bool:
    try:
        if not (os.path.isfile(path) and os.path.getsize(path)):  # noqa: PTH113, PTH202 - a pipe can't be read here
            return False
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # it may be written, but not read
        return False
