"""The reporter to CSV files, one for each key."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tallystream.pyformance_compat.reporters.reporter import Reporter

if TYPE_CHECKING:
    from types import TracebackType

    from tallystream.pyformance_compat._clock import Clock
    from tallystream.pyformance_compat._registry import MetricsRegistry


class CsvReporter(Reporter):
    """Appends a row to `KEY.csv` for each key: the time, then the values sorted by attribute.

    `/` in a key becomes `_` in the file's name. Files may be moved at any time, since none stays open.

    Args:
        registry, reporting_interval, clock: as in Reporter.
        path: the folder, created if it does not exist; if None, the current folder.
        separator: one character between two values.
    """

    def __init__(
        self,
        registry: MetricsRegistry | None = None,
        reporting_interval: float = 30,
        path: str | None = None,
        separator: str = "\t",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(registry, reporting_interval, clock)
        self.path = str(Path.cwd()) if path is None else path
        Path(self.path).mkdir(parents=True, exist_ok=True)
        self.separator = separator

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Append one row to each file."""
        values, seconds = self._values(registry, timestamp)
        time = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
        for key, attributes in values.items():
            name = str(key).replace("/", "_").replace("\0", "_")
            target = Path(self.path) / f"{name}.csv"
            names = sorted(attributes)
            is_new = not target.exists()
            with target.open("a", newline="", encoding="utf-8") as file:
                rows = csv.writer(file, delimiter=self.separator, lineterminator="\n")
                if is_new:
                    rows.writerow(["timestamp", *names])
                rows.writerow([time, *(attributes[attribute] for attribute in names)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: no file is open."""
