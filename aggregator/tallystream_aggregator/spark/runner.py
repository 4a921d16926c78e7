"""Run a streaming query until it ends or a signal requests a stop, and let its batch finish."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_aggregator.shutdown import StopRequest
from tallystream_aggregator.spark.errors import sentence, trace_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

POLL_S = 0.1
FINISH_S = 60.0
"""How many seconds a batch may take to finish before it is interrupted. It then runs again at the next start."""


def run_until_stopped(
    query: StreamingQuery,
    checkpoint: Path,
    *,
    ready: Path | None = None,
    stop: StopRequest | None = None,
    after_batch: Callable[[], None] | None = None,
    until: Callable[[], bool] = lambda: False,
) -> int:
    """Block until `query` ends and return 0. After SIGTERM or SIGINT, let its batch finish and stop it.

    The file `ready` is created as soon as the first trigger has run. `stop` is a request that was installed earlier, so
    that a signal during start-up is not missed. `after_batch` is called several times a second and once at the end.
    `until` is called after it while the query runs; if it returns True, the query is stopped as by a signal.

    Raises:
        TallystreamError: the query failed; the message has the reason.
    """
    stop = stop or StopRequest()
    if not stop.is_set():
        stop.install()  # again: PySpark replaced the handler of SIGINT when the session was created
    while query.isActive and not stop.wait(POLL_S):
        if ready is not None and query.lastProgress is not None:
            ready.touch()
            ready = None
        if after_batch is not None:
            after_batch()
        if until():
            break
    if query.isActive:
        if stop.is_set():
            log.info("stopping when the batch is finished")
        _finish(query)
    if after_batch is not None:
        after_batch()
    failure = query.exception()
    if failure is not None:
        raise TallystreamError(f"query {query.name}: {sentence(str(failure), trace_of(failure), checkpoint)}")
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
