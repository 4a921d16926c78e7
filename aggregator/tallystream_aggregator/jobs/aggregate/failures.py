"""Why a query of the loop failed, and whether it helps to start it again."""

from __future__ import annotations

import re
import tempfile
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OURS = re.compile(r"^tallystream[\w.]*\.(\w+): (.+)$", re.MULTILINE)
"""The error of a task: the last line of a Python traceback in Spark's message."""

FULL = "No space left on device"
"""The message of the operating system, which Java repeats."""

DENIED = re.compile(r"Permission denied|AccessDeniedException|Read-only file system|AccessControlException")

MAX_REASON = 2000
"""The most characters of Spark's message."""


class Remedy(Enum):
    """What helps against a failure."""

    AGAIN = "start the query again, as often as it takes"
    RETRY = "start it again; if that does not help, the checkpoint may be the reason"
    STOP = "a person must decide"


OF_ERRORS = {"FencedError": Remedy.AGAIN, "BrokerError": Remedy.AGAIN, "UnavailableError": Remedy.AGAIN}
"""The errors of a task that need nobody, by name."""


class Failure(NamedTuple):
    """A failure of a query: its remedy, and its reason in one sentence."""

    remedy: Remedy
    reason: str


def failure_of(error: Any, checkpoint: Path) -> Failure:
    """Return the failure for an exception with which a query ended or could not be started."""
    if isinstance(error, Py4JJavaError):
        message = traces = str(error.java_exception.toString())
    else:
        message, traces = str(error), stack_traces(error)
    ours = OURS.findall(message)
    if ours:
        name, reason = ours[-1]  # the others are its causes
        return Failure(OF_ERRORS.get(name, Remedy.STOP), reason)
    if FULL in message or FULL in traces:
        return Failure(Remedy.STOP, _no_space(checkpoint))
    reason = _reason(message)
    if DENIED.search(message) or DENIED.search(traces):
        return Failure(Remedy.STOP, reason)
    return Failure(Remedy.RETRY, reason)


@contextmanager
def checkpoint_errors(checkpoint: Path) -> Iterator[None]:
    """Translate an OSError of the block, which reads or writes files of the checkpoint or beside it.

    Raises:
        TallystreamError: the block raised OSError.
    """
    try:
        yield
    except OSError as error:
        reason = _no_space(checkpoint) if FULL in str(error) else str(error)
        raise TallystreamError(f"checkpoint {checkpoint}: {reason}") from error


def stack_traces(failure: Any) -> str:
    """Return the stack traces of Spark's exception and of all its causes as text."""
    texts = []
    while failure is not None:
        texts.append(str(getattr(failure, "_stackTrace", "")))
        failure = getattr(failure, "_cause", None)
    return "\n".join(texts)


def _reason(message: str) -> str:
    """Return Spark's message in one line, without Java's stack and without Python's, but with its exception."""
    text = message.split("JVM stacktrace", maxsplit=1)[0].split("=== Streaming Query ===", maxsplit=1)[0]
    before, trace, after = text.partition("Traceback (most recent call last):\n")
    raised = [line for line in after.splitlines() if line[:1].isalpha()]
    return " ".join((f"{before} {raised[-1]}" if trace and raised else text).split())[:MAX_REASON]


def _no_space(checkpoint: Path) -> str:
    return (
        f"the disk of the checkpoint {checkpoint} is full, or that of {tempfile.gettempdir()}, where Spark keeps "
        "temporary files: free some space, move the checkpoint to a larger disk, or name another folder with "
        "SPARK_LOCAL_DIRS, and start it again: it continues where it stopped."
    )
