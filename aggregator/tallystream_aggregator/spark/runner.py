"""Explain why a streaming query failed."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Iterator


log = logging.getLogger(__name__)


@contextmanager
def checkpoint_errors(checkpoint: Path) -> Iterator[None]:
    """Translate an OSError of the block, which reads or writes files of the checkpoint or beside it.

    Raises:
        TallystreamError: the block raised OSError.
    """
    try:
        yield
    except OSError as error:
        raise TallystreamError(f"checkpoint {checkpoint}: {failure_reason(str(error), '', checkpoint)}") from error


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

MAX_REASON = 2000
"""The most characters of Spark's message."""


def failure_reason(message: str, traces: str, checkpoint: Path) -> str:
    """Return why a query failed in one sentence: Spark's `message`, or a clearer one if the cause is known.

    `traces` are the stack traces of all causes.
    """
    if FULL in message or FULL in traces:
        return _no_space(checkpoint)
    text = message.split("JVM stacktrace", maxsplit=1)[0].split("=== Streaming Query ===", maxsplit=1)[0]
    lost = LOST.search(text) or (re.search(r"^Reason: (.+)$", text, re.MULTILINE) if "failOnDataLoss" in text else None)
    if lost:
        return (
            f"records were deleted before they were read: {lost[1]} To continue without them: --on-data-loss continue."
        )
    text = " ".join(_without_trace(text).split())[:MAX_REASON]
    if UNREADABLE.search(text) or READING in traces:
        return (
            f"the checkpoint {checkpoint} can't be read ({text}); if a file of it is damaged, move it away: "
            "tallystream rebuild makes the aggregator's again."
        )
    return text


def stack_traces(failure: Any) -> str:
    """Return the stack traces of Spark's exception and of all its causes as text."""
    texts = []
    while failure is not None:
        texts.append(str(getattr(failure, "_stackTrace", "")))
        failure = getattr(failure, "_cause", None)
    return "\n".join(texts)


def _without_trace(text: str) -> str:
    """Remove a Python traceback from Spark's message, except the exception: its last line that is not indented."""
    before, trace, after = text.partition("Traceback (most recent call last):\n")
    raised = [line for line in after.splitlines() if line[:1].isalpha()]
    return f"{before} {raised[-1]}" if trace and raised else text


def _no_space(checkpoint: Path) -> str:
    scratch = Path(tempfile.gettempdir())
    if _free_bytes(scratch) < _free_bytes(checkpoint):
        return (
            f"the disk of {scratch} is full, where Spark keeps temporary files: free some space, or name another "
            "folder with SPARK_LOCAL_DIRS, and start it again: it continues where it stopped."
        )
    return (
        f"the disk of the checkpoint {checkpoint} is full: free some space, or move the checkpoint to a larger disk, "
        "and start it again: it continues where it stopped."
    )


def _free_bytes(folder: Path) -> int:
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free
