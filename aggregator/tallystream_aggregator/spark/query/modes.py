"""The two modes of a query, live and catch-up: which one fits the lag, and the change between two batches.

`live` is fast where batches are small, `catch_up` where they are large. Both use the same checkpoint, so exactness does
not depend on the change: a query that is stopped has finished its batch, or runs it again with the same offsets.
"""

from __future__ import annotations

import logging
from enum import StrEnum
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

CATCH_UP_FACTOR = 40
"""The first batch in catch-up takes so many times as many records as a live one: compaction leaves few of them."""

FAR_BEHIND = 2
"""Live batches' worth of records, beyond which a query counts as far behind. A change of modes takes two or three
seconds, as four live batches of the short form do, and half a one of snapshots with fifty metrics."""

MAX_BATCHES_FAR_BEHIND = 3
"""Finished batches in a row, after which a query that is far behind is not expected to catch up by itself."""


class Mode(StrEnum):
    """What a query's batches are made for."""

    LIVE = "live"
    CATCH_UP = "catch-up"


class Choice:
    """Chooses the mode; `forced` is the one that was asked for, None to go by lag.

    `most` is how many records a live batch takes, `behind` how many there are at first. `now` is the mode at the
    moment. A query that is far behind begins with, or changes to, catch-up, and back when less than one live
    batch is left: so the lag has to grow, or shrink, by several batches between two changes.
    """

    def __init__(self, forced: Mode | None, most: int, behind: int) -> None:
        self._forced, self._most, self.behind = forced, most, behind
        self._far = 0
        self.now = forced or (Mode.CATCH_UP if behind > FAR_BEHIND * most else Mode.LIVE)

    def finished(self, behind: int) -> bool:
        """Take note of a finished batch, after which so many records were left; tell whether the mode changes."""
        self._far = self._far + 1 if behind > FAR_BEHIND * self._most else 0
        if self._forced is not None:
            return False
        if self.now is Mode.CATCH_UP and behind < self._most:
            self.now = Mode.LIVE
            return True
        if self.now is Mode.LIVE and self._far >= MAX_BATCHES_FAR_BEHIND:
            self.now = Mode.CATCH_UP
            return True
        return False


log = logging.getLogger(__name__)


def behind(checkpoint: Path, begin: Offsets, ends: Offsets) -> int:
    """Return how many records a query has before it; `begin` is where a new table begins, `ends` where topics end.

    Raises:
        CheckpointError: the checkpoint can't be read.
    """
    done = last_committed(checkpoint)
    reached = begin if done is None else done[1]
    return size(reached, ends)


def run_modes(
    choice: Choice,
    start: Callable[[Mode], StreamingQuery],
    checkpoint: Path,
    *,
    stop: StopRequest,
    after_batch: Callable[[], None],
    last: Callable[[], Mapping[str, Any] | None],
    changing: Callable[[StreamingQuery], None],
    ready: Path | None = None,
) -> int:
    """Block until the query ends, or a stop is asked for, and return 0.

    `start` starts the query in a mode; `last` returns what Spark told of the batch that was finished last;
    `changing` is called before a query is stopped to change its mode. The others are those of `run_until_stopped`.

    Raises:
        TallystreamError: the query failed.
    """
    while True:
        query = start(choice.now)
        log.info("mode %s", choice.now)
        watch = _ModeWatch(query, choice, last, changing)
        code = run_until_stopped(
            query, checkpoint, ready=ready, stop=stop, after_batch=after_batch, until=watch.changes
        )
        if not watch.changed or stop.is_set():
            return code
        log.info("changing to mode %s: %d records behind", choice.now, watch.behind)


class _ModeWatch:
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
        """Tell whether the mode changes now."""
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
