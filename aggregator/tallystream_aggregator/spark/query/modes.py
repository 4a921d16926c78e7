"""The two modes of a query, live and catch-up: choose one by the lag, and change it between two batches.

Live is faster with small batches, catch-up with large ones. Both use the same checkpoint, so a change of the mode does
not affect exactness: a stopped query has finished its batch, or runs it again with the same offsets.
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
    from tallystream_aggregator.spark.query_listener import HealthListener

log = logging.getLogger(__name__)

CATCH_UP_FACTOR = 40
"""The first batch in catch-up may have this many times the records of a live one: compaction keeps few of them."""

FAR_BEHIND = 2
"""A query with a lag of more than this many live batches is far behind. A change of modes takes two or three seconds.
That is the time of four live batches of the short form, or of half a batch of snapshots with fifty metrics."""

MAX_BATCHES_FAR_BEHIND = 3
"""A live query that is far behind after this many batches in a row changes to catch-up."""


class Mode(StrEnum):
    """The mode of a query."""

    LIVE = "live"
    CATCH_UP = "catch-up"


class Choice:
    """Chooses the mode: `forced`, or by the lag if that is None. `now` is the current mode.

    `max_records` limits a live batch, `behind` is the lag at the start. A query that is far behind begins in catch-up
    or changes to it. It changes back when less than one live batch is left. So the lag grows or shrinks by more than a
    live batch between two changes.
    """

    def __init__(self, forced: Mode | None, max_records: int, behind: int) -> None:
        self._forced, self._max_records, self.behind = forced, max_records, behind
        self._far = 0
        self.now = forced or (Mode.CATCH_UP if behind > FAR_BEHIND * max_records else Mode.LIVE)

    def finished(self, behind: int) -> bool:
        """Update the choice after a batch, at a lag of `behind` records. Return whether the mode changes."""
        self._far = self._far + 1 if behind > FAR_BEHIND * self._max_records else 0
        if self._forced is not None:
            return False
        if self.now is Mode.CATCH_UP and behind < self._max_records:
            self.now = Mode.LIVE
            return True
        if self.now is Mode.LIVE and self._far >= MAX_BATCHES_FAR_BEHIND:
            self.now = Mode.CATCH_UP
            return True
        return False


def behind(checkpoint: Path, begin: Offsets, ends: Offsets) -> int:
    """Return the lag of a query, in records. `begin` are the first offsets of a new table, `ends` the ends of topics.

    Raises:
        CheckpointError: the checkpoint can't be read.
    """
    done = last_committed(checkpoint)
    reached = begin if done is None else done[1]
    return size(reached, ends)


def run_modes(
    choice: Choice,
    start: Callable[[Mode], StreamingQuery],
    listener: HealthListener,
    checkpoint: Path,
    *,
    stop: StopRequest,
    after_batch: Callable[[], None],
    ready: Path | None = None,
) -> int:
    """Block until the query ends or a stop is requested, and return 0. `start` starts the query in a mode.

    The other parameters are those of `run_until_stopped`.

    Raises:
        TallystreamError: the query failed.
    """
    while True:
        query = start(choice.now)
        log.info("mode %s", choice.now)
        watch = _ModeWatch(query, choice, listener)
        code = run_until_stopped(
            query, checkpoint, stop=stop, after_batch=after_batch, until=watch.changes, ready=ready
        )
        if not watch.changed or stop.is_set():
            return code
        log.info("changing to mode %s: %d records behind", choice.now, watch.behind)


class _ModeWatch:
    """Updates the choice once after each finished batch of a query."""

    def __init__(self, query: StreamingQuery, choice: Choice, listener: HealthListener) -> None:
        self._choice, self._listener = choice, listener
        self._run = str(query.runId)
        self._batch = -1
        self.changed = False
        self.behind = 0

    def changes(self) -> bool:
        """Return whether the mode changes now."""
        progress = self._listener.last
        if progress is None or progress["runId"] != self._run or progress["batchId"] == self._batch:
            return False
        self._batch = progress["batchId"]
        self.behind = left(progress)
        self.changed = self._choice.finished(self.behind)
        if self.changed:
            self._listener.changing.add(self._run)
        return self.changed


def left(progress: Mapping[str, Any]) -> int:
    """Return how many records were left when a batch was planned, by Spark's progress of the batch."""
    return sum(size(source.get("endOffset") or {}, source.get("latestOffset") or {}) for source in progress["sources"])
