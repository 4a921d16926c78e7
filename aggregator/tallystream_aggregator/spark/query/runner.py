"""Run a query under the plan that fits its lag, and change plans between two batches; the checkpoint is the same.

Exactness: a query that is stopped has finished its batch, or runs it again, with the same offsets, under the next plan.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tallystream_aggregator.spark.catch_up.splits import size
from tallystream_aggregator.spark.checkpoint import last_committed
from tallystream_aggregator.spark.runner import run_until_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

    from tallystream_aggregator.kafka.topic_selection import Offsets
    from tallystream_aggregator.shutdown import StopRequest
    from tallystream_aggregator.spark.query.modes import Choice, Plan

log = logging.getLogger(__name__)


def behind(checkpoint: Path, begin: Offsets, ends: Offsets) -> int:
    """Return how many records a query has before it; `begin` is where a new table begins, `ends` where topics end.

    Raises:
        CheckpointError: the checkpoint can't be read.
    """
    done = last_committed(checkpoint)
    reached = begin if done is None else done[1]
    return size(reached, ends)


def run_plans(
    choice: Choice,
    start: Callable[[Plan], StreamingQuery],
    checkpoint: Path,
    *,
    stop: StopRequest,
    after_batch: Callable[[], None],
    last: Callable[[], Mapping[str, Any] | None],
    changing: Callable[[StreamingQuery], None],
    ready: Path | None = None,
) -> int:
    """Block until the query ends, or a stop is asked for, and return 0.

    `start` starts the query under a plan; `last` returns what Spark told of the batch that was finished last;
    `changing` is called before a query is stopped to change its plan. The others are those of `run_until_stopped`.

    Raises:
        TallystreamError: the query failed.
    """
    while True:
        query = start(choice.now)
        log.info("plan %s", choice.now)
        watch = _Watch(query, choice, last, changing)
        code = run_until_stopped(
            query, checkpoint, ready=ready, stop=stop, after_batch=after_batch, until=watch.changes
        )
        if not watch.changed or stop.is_set():
            return code
        log.info("changing to plan %s: %d records behind", choice.now, watch.behind)


class _Watch:
    """Tells the choice of each batch that a query has finished, once."""

    def __init__(
        self,
        query: StreamingQuery,
        choice: Choice,
        last: Callable[[], Mapping[str, Any] | None],
        changing: Callable[[StreamingQuery], None],
    ) -> None:
        self._query, self._choice, self._last, self._changing = query, choice, last, changing
        self._run = str(query.runId)
        self._batch = -1
        self.changed = False
        self.behind = 0

    def changes(self) -> bool:
        """Tell whether the plan changes now."""
        progress = self._last()
        if progress is None or progress["runId"] != self._run or progress["batchId"] == self._batch:
            return False
        self._batch = progress["batchId"]
        self.behind = left(progress)
        self.changed = self._choice.finished(self.behind)
        if self.changed:
            self._changing(self._query)
        return self.changed


def left(progress: Mapping[str, Any]) -> int:
    """Return how many records were left when a batch had been planned, by what Spark tells of it."""
    return sum(size(source.get("endOffset") or {}, source.get("latestOffset") or {}) for source in progress["sources"])
