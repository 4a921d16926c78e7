"""The finished epochs of the driver's queries, from Spark's progress of their batches."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.spark.epochs.query import rows_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from tallystream_aggregator.health import Health
    from tallystream_aggregator.stream.epochs import EpochRow


class Epoch(NamedTuple):
    """A finished epoch: the number of its batch, the time of its start in epoch ms, and the rows of the loops."""

    batch: int
    ts_ms: int
    rows: list[EpochRow]


class Epochs:
    """Notes the finished epochs of one query after the other, and reports them to `health`. For one thread.

    Spark's progress has the newest one. One that ended just before it may not be seen: a look takes less than an epoch.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self.finished: deque[Epoch] = deque()
        """Those that nobody has taken from here."""
        self.count = 0
        self.batch: int | None = None
        """The last batch of the present query that has finished, None if none has."""
        self.stopped = False
        """Whether its epoch saw the request to stop, so it has stored everything that was published."""

    def reset(self) -> None:
        """Note that a query starts, or has failed: it is not ready."""
        self.batch, self.stopped = None, False
        self._health.status.run()

    def look(self, query: StreamingQuery) -> None:
        """Note an epoch that has finished since the last look.

        Raises:
            Py4JError: Spark's JVM has ended.
        """
        progress = query.lastProgress
        if progress is None or progress["batchId"] == self.batch:
            return
        self.batch = progress["batchId"]
        rows = rows_of(progress)
        ts_ms = int(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000)
        self.finished.append(Epoch(progress["batchId"], ts_ms, rows))
        self.count += 1
        self.stopped = bool(rows) and all(row.stopped for row in rows)
        self._health.progress.epoch(
            progress["stateOperators"],
            steps=sum(row.steps for row in rows),
            restarts=sum(row.restarts for row in rows),
            seconds=max((row.seconds for row in rows), default=0.0),
            waited_s=min((row.waited_s for row in rows), default=0.0),
            state_bytes=sum(row.state_bytes for row in rows),
        )
        if all(row.positions for row in rows):
            self._health.status.checked()
        else:  # a loop waits for the broker, or is not yet where it had published
            self._health.status.run()
