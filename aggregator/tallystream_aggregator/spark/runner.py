"""Start a streaming query, run it until it ends or a signal requests a stop, and explain why it failed."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tallystream_aggregator.shutdown import StopRequest

log = logging.getLogger(__name__)

POLL_S = 0.1
FINISH_S = 60.0
"""How many seconds a batch may take to finish before it is interrupted. It then runs again at the next start."""


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


def start(writer: DataStreamWriter, checkpoint: Path) -> StreamingQuery:
    """Start a query on its checkpoint.

    Raises:
        TallystreamError: Spark can't start it, most likely because a file of the checkpoint is damaged.
    """
    try:
        return writer.start()
    except (Py4JError, PySparkException) as error:
        message = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
        raise TallystreamError(f"the query can't be started: {failure_reason(message, message, checkpoint)}") from error


def run_until_stopped(
    query: StreamingQuery,
    checkpoint: Path,
    *,
    stop: StopRequest,
    after_batch: Callable[[], None],
    until: Callable[[], bool] = lambda: False,
    ready: Path | None = None,
) -> int:
    """Block until `query` ends and return 0. After SIGTERM or SIGINT, let its batch finish and stop it.

    The file `ready` is created as soon as the first trigger has run. `stop` was installed earlier, so that a signal
    during start-up is not missed. `after_batch` is called several times a second and once at the end. `until` is called
    after it while the query runs; if it returns True, the query is stopped as by a signal.

    Raises:
        TallystreamError: the query failed; the message has the reason.
    """
    if not stop.is_set():
        stop.install()  # again: PySpark replaced the handler of SIGINT when the session was created
    while query.isActive and not stop.wait(POLL_S):
        if ready is not None and query.lastProgress is not None:
            ready.touch()
            ready = None
        after_batch()
        if until():
            break
    if query.isActive:
        if stop.is_set():
            log.info("stopping when the batch is finished")
        _finish(query)
    after_batch()
    failure = query.exception()
    if failure is not None:
        reason = failure_reason(str(failure), stack_traces(failure), checkpoint)
        raise TallystreamError(f"query {query.name}: {reason}")
    return 0


def _finish(query: StreamingQuery) -> None:
    pause, began, finished = threading.Event(), time.monotonic(), _finished(query)
    # Between two triggers no batch runs, so none is interrupted. If batches take longer than the interval, triggers
    # follow each other without a pause: then the running batch is waited for. The batch after it is interrupted before
    # its commit, and the next start runs it again.
    while query.isActive and query.status["isTriggerActive"] and _finished(query) == finished:
        if time.monotonic() - began > FINISH_S:
            break
        pause.wait(0.01)
    query.stop()


def _finished(query: StreamingQuery) -> int:
    """Return the number of the last finished batch, -1 before the first one."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


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
