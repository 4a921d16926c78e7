"""The log on standard error, as text or as one JSON object per line."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tallystream_dashboards.printable import printable, printable_json

if TYPE_CHECKING:
    from types import TracebackType

FORMAT_ENV = "TALLYSTREAM_LOG_FORMAT"
"""Also read by the components of `up`, and by Spark's JVM through log4j2.properties."""

BREAKS = "\n\t"
"""Allowed in the traceback of an exception, and in an error that quotes lines of a log."""

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class TextFormatter(logging.Formatter):
    """Formats a record as one line with all unprintable characters escaped; only a traceback has several lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Return the line without the traceback."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 (the same)
        """Return the traceback."""
        return printable(super().formatException(ei), keep=BREAKS)


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON: `ts` (ISO 8601, UTC, milliseconds), `level`, `logger`, `message` and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; `exception` is left out if there is none."""
        ts = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"ts": ts, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False))


def configure(level: str, log_format: str) -> None:
    """Configure the root logger; the arguments are the values of --log-level and --log-format."""
    os.environ[FORMAT_ENV] = log_format
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if log_format == "json":
        logging.captureWarnings(True)
        sys.excepthook = _log_exception


def error_line(sentence: str) -> str:
    """Return the error of a command that failed, in the format of the log."""
    if os.environ.get(FORMAT_ENV) != "json":
        return printable(sentence, keep=BREAKS)
    return JsonFormatter().format(logging.LogRecord("tallystream", logging.ERROR, "", 0, sentence, None, None))


def _log_exception(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    logging.getLogger("tallystream").critical("unexpected error: %s", error, exc_info=(kind, error, traceback))
