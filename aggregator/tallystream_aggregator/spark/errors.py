"""Return why a query failed as one sentence: Spark's message, or a clearer one if the cause is known."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FULL = "No space left on device"
"""The message of the operating system, which Java repeats."""

UNREADABLE = re.compile(
    "CANNOT_LOAD_STATE_STORE|Unexpected end-of-input|Unrecognized token|Incomplete log|Malformed|StateVersionError"
    "|Checksum (error|file)"
)
"""Parts of the messages with which Spark or the table reports an unreadable file of the checkpoint without its name."""

READING = "HDFSMetadataLog.get("
"""If a stack trace has this call, Spark failed to read one of the checkpoint's logs, whatever its message."""

LOST = re.compile(r"^tallystream\S*\.LostRecordsError: (.+)$", re.MULTILINE)
"""The error of the catch-up source: the last line of a Python traceback in Spark's message."""

REMEDY = "if a file of it is damaged, move it away: tallystream rebuild makes the aggregator's again"

LONGEST = 2000


def start(writer: DataStreamWriter, checkpoint: Path) -> StreamingQuery:
    """Start a query on its checkpoint.

    Raises:
        TallystreamError: Spark can't start it, most likely because a file of the checkpoint is damaged.
    """
    try:
        return writer.start()
    except (Py4JError, PySparkException) as error:
        message = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
        raise TallystreamError(f"the query can't be started: {sentence(message, message, checkpoint)}") from error


def sentence(message: str, trace: str, checkpoint: Path, free: Callable[[str], int] | None = None) -> str:
    """Return why a query failed. `message` is Spark's message, `trace` the stack traces of all causes.

    `free` returns the number of free bytes on the disk of a folder; None asks the operating system.
    """
    if FULL in message or FULL in trace:
        return _no_space(checkpoint, free or _free)
    text = message.split("JVM stacktrace", maxsplit=1)[0].split("=== Streaming Query ===", maxsplit=1)[0]
    lost = LOST.search(text) or (re.search(r"^Reason: (.+)$", text, re.MULTILINE) if "failOnDataLoss" in text else None)
    if lost:
        return (
            f"records were deleted before they were read: {lost[1]} To continue without them: --on-data-loss continue."
        )
    text = " ".join(_without_trace(text).split())[:LONGEST]
    if UNREADABLE.search(text) or READING in trace:
        return f"the checkpoint {checkpoint} can't be read ({text}); {REMEDY}."
    return text


def _without_trace(text: str) -> str:
    """Remove a Python traceback from Spark's message, except the exception: its last line that is not indented."""
    before, trace, after = text.partition("Traceback (most recent call last):\n")
    raised = [line for line in after.splitlines() if line[:1].isalpha()]
    return f"{before} {raised[-1]}" if trace and raised else text


def trace_of(failure: Any) -> str:
    """Return the stack traces of Spark's exception and of all its causes as text."""
    texts = []
    while failure is not None:
        texts.append(str(getattr(failure, "_stackTrace", "")))
        failure = getattr(failure, "_cause", None)
    return "\n".join(texts)


def _free(folder: str) -> int:
    there = next(path for path in (Path(folder).absolute(), *Path(folder).absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def _no_space(checkpoint: Path, free: Callable[[str], int]) -> str:
    scratch = tempfile.gettempdir()
    if free(scratch) < free(str(checkpoint)):
        return (
            f"the disk of {scratch} is full, where Spark keeps temporary files: make room there, or name another "
            "folder with SPARK_LOCAL_DIRS, and start it again: it continues where it stopped."
        )
    return (
        f"the disk of the checkpoint {checkpoint} is full: make room there, or move the checkpoint to a larger disk, "
        "and start it again: it continues where it stopped."
    )
