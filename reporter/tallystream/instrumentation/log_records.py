"""A handler of Python's logging that counts log records by level."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tallystream.instrumentation.default import default_registry

if TYPE_CHECKING:
    from tallystream.metric_factory import MetricFactory


class LogRecordCounter(logging.Handler):
    """Counts the log records that reach it: `logging.getLogger().addHandler(LogRecordCounter())`.

    Args:
        registry: the registry of the counters, or a child of it; the default registry if it is None.
        name: the name of the counters. They have the tag `level`, such as `error`.
        level: the lowest level that is counted.
    """

    def __init__(
        self, registry: MetricFactory | None = None, *, name: str = "log.records", level: int | str = logging.NOTSET
    ) -> None:
        super().__init__(level)
        self._registry = registry or default_registry()
        self._counter_name = name

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record. An error does not reach the code that logs: see `logging.Handler.handleError`."""
        try:
            self._registry.counter(self._counter_name, {"level": record.levelname.lower()}).inc()
        except Exception:  # noqa: BLE001 - as the handlers of Python's logging do
            self.handleError(record)
