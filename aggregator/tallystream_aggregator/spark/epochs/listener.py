"""Spark's listener: collects the finished epochs of a session's queries."""

from __future__ import annotations

import json
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import SparkContext
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener

from tallystream_aggregator.health.internal_metrics import EpochNumbers
from tallystream_aggregator.spark.epochs.query import rows_of

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from tallystream_aggregator.health import Health
    from tallystream_aggregator.stream.epochs import EpochRow


class Epoch(NamedTuple):
    """A finished epoch: the number of its batch, the time of its start in epoch ms, and the rows of the shards."""

    batch: int
    ts_ms: int
    rows: list[EpochRow]


class EpochListener(StreamingQueryListener):
    """Collects the finished epochs of a session's queries, and reports them to `health`. Spark calls it in a thread."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self.finished: deque[Epoch] = deque()
        self.epochs = 0
        self.stopped = False
        """Whether the last epoch saw the request to stop, so it has stored everything that was published."""
        self._java: JavaObject | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Report that the query has started."""
        self._health.status.run()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Note a finished epoch."""
        self.progressed(event.progress.json)

    def progressed(self, progress: str) -> None:
        """Note a finished epoch from Spark's progress, a JSON text."""
        parsed: dict[str, Any] = json.loads(progress)
        rows = rows_of(parsed)
        ts_ms = int(datetime.fromisoformat(parsed["timestamp"]).timestamp() * 1000)
        self.finished.append(Epoch(int(parsed["batchId"]), ts_ms, rows))
        self.epochs += 1
        self.stopped = bool(rows) and all(row.stopped for row in rows)
        numbers = EpochNumbers(
            steps=sum(row.steps for row in rows),
            restarts=sum(row.restarts for row in rows),
            seconds=max((row.seconds for row in rows), default=0.0),
            waited_s=min((row.waited_s for row in rows), default=0.0),
            state_bytes=sum(row.state_bytes for row in rows),
        )
        self._health.progress.epoch(parsed, numbers)
        self._health.status.checked()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: each batch has a tick."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note that the query is not ready. The driver starts it again, or ends."""
        self._health.status.run()

    @property
    def _jlistener(self) -> JavaObject:
        if self._java is None:
            jvm: Any = SparkContext._jvm  # noqa: SLF001 (as in the overridden method)
            self._java = jvm.PythonStreamingQueryListenerWrapper(_Listener(self))
        return self._java


class _Listener(JStreamingQueryListener):
    """Gets the progress of a batch as JSON by one call to the JVM.

    PySpark's own listener makes a Python object of it, by about a hundred calls to the JVM for every batch. Each call
    searches all jars for classes.
    """

    def __init__(self, listener: EpochListener) -> None:
        super().__init__(listener)
        self._listener = listener

    def onQueryProgress(self, jevent: JavaObject) -> None:
        self._listener.progressed(jevent.progress().json())
