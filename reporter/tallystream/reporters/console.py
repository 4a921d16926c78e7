"""Reporters that write readable text to a stream or a logger."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from tallystream.reporters.lines import readable
from tallystream.reporters.local import LocalReporter

if TYPE_CHECKING:
    from tallystream.record import Metric
    from tallystream.registry import MetricRegistry
    from tallystream.reporters.base import Reportable


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
        lines = [f"-- {time} {self.registry.app}", *(readable(metric, self.shape.values(metric)) for metric in metrics)]
        text = "\n".join(lines) + "\n"
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
            text = readable(metric, self.shape.values(metric))
            self._logger.log(self._level, "%s", text)
            size += len(text.encode())
        return size
