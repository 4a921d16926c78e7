"""Why a query of the loop failed, and what to do about it: begin again, set the checkpoint aside, or stop."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError

from tallystream_aggregator.spark.runner import FULL, READING, UNREADABLE, failure_reason, stack_traces

if TYPE_CHECKING:
    from pathlib import Path

OURS = re.compile(r"^tallystream[\w.]*\.(\w+): (.+)$", re.MULTILINE)
"""The error of a task: the last line of a Python traceback in Spark's message."""

DENIED = re.compile(r"Permission denied|AccessDeniedException|Read-only file system|AccessControlException")


OTHER_LOOPS = "sources in the checkpoint offsets"
"""Part of Spark's message if the checkpoint has the query of another number of loops: the table was split."""


class Remedy(Enum):
    """What helps against a failure."""

    AGAIN = "start the query again"
    FENCED = "start it again while the lease is held"
    SET_ASIDE = "set the checkpoint aside, and start it again"
    STOP = "a person must decide"


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
    ours = OURS.search(message)
    if ours is not None:
        return Failure(Remedy.FENCED if ours[1] == "FencedError" else Remedy.STOP, ours[2])
    reason = failure_reason(message, traces, checkpoint)
    if any(FULL in text or DENIED.search(text) for text in (message, traces)):
        return Failure(Remedy.STOP, reason)
    if UNREADABLE.search(message) or READING in traces or OTHER_LOOPS in message:
        return Failure(Remedy.SET_ASIDE, reason)
    return Failure(Remedy.AGAIN, reason)
