"""The log on standard error: lines for people, or one JSON object a line for machines."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError
from tallystream_aggregator.terminal import printable, printable_json

if TYPE_CHECKING:
    from types import TracebackType

FORMAT_ENV = "TALLYSTREAM_LOG_FORMAT"
"""Handed down to the components of `up`, and to Spark's JVM, whose log4j2.properties asks for it."""

BREAKS = "\n\t"
"""What the trace of an exception, and the lines of a log that an error quotes, may hold."""

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class TextLines(logging.Formatter):
    """Lines for people. A record is one line, whatever its message holds; only an exception's trace has several."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Return the line."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 (the same)
        """Return the trace."""
        return printable(super().formatException(ei), keep=BREAKS)


class JsonLines(logging.Formatter):
    """`ts` (ISO 8601, UTC, milliseconds), `level`, `logger`, `message` and, where there is one, `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, whatever newlines are in its parts."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"ts": at, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False))


def set_up(level: str, form: str) -> None:
    """Begin to log. `level` and `form` are as --log-level and --log-format say.

    Raises:
        ConfigError: one of them is none that there is.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError("--log-level", level, "give debug, info, warning or error")
    if form not in ("text", "json"):
        raise ConfigError("--log-format", form, "give text or json")
    os.environ[FORMAT_ENV] = form
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines(TEXT))
    logging.basicConfig(level=number, handlers=[handler])
    if form == "json":
        logging.captureWarnings(True)
        sys.excepthook = _log_exception


def final_line(sentence: str) -> str:
    """Return what a command says when it fails, as a line of the log that was chosen."""
    if os.environ.get(FORMAT_ENV) != "json":
        return printable(sentence, keep=BREAKS)
    return JsonLines().format(logging.LogRecord("tallystream", logging.ERROR, "", 0, sentence, None, None))


def _log_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("tallystream").critical("unexpected: %s", error, exc_info=(kind, error, trace))
