"""The reporter to the console."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from tallystream.pyformance_compat.reporters.reporter import Reporter

if TYPE_CHECKING:
    from tallystream.pyformance_compat._clock import Clock
    from tallystream.pyformance_compat._registry import MetricsRegistry


class ConsoleReporter(Reporter):
    """Prints each report: a heading with the time, then each key and its values.

    Args:
        registry, reporting_interval, clock: as in Reporter.
        stream: the stream to print to; if None, the current standard error.
    """

    def __init__(
        self,
        registry: MetricsRegistry | None = None,
        reporting_interval: float = 30,
        stream: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(registry, reporting_interval, clock)
        self.stream = stream

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Print one report."""
        values, seconds = self._values(registry, timestamp)
        lines = [f"== {datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} ==================================="]
        for key, attributes in values.items():
            lines.append(f"{key}:")
            lines += [f"{attribute:>20} = {value}" for attribute, value in attributes.items()]
        print(*lines, "", sep="\n", file=self.stream or sys.stderr, flush=True)
