"""Report a query's batches to its health: Spark's listener."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from py4j.java_gateway import JavaObject
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from tallystream_aggregator.health import Health


class HealthListener(StreamingQueryListener):
    """Reports the events of the session's query to `health`, in a thread of Spark, so that it delays no batch."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self.changing: set[str] = set()
        """The run IDs that end because the mode changes. The query continues after them."""
        self.last: Mapping[str, Any] | None = None
        """Spark's progress of the last finished batch. To get it from the query takes many calls to the JVM."""
        self._java: JavaObject | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Report that the query has started."""
        self._health.status.run()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report a finished batch."""
        self.progressed(event.progress.json)

    def progressed(self, progress: str) -> None:
        """Report a finished batch by Spark's progress, a JSON text."""
        self.last = json.loads(progress)
        self._health.progress(self.last)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Report that the query checked for records and found none."""
        self._health.status.checked()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Report that the query has ended, unless it continues in another mode."""
        if event.exception is not None or str(event.runId) not in self.changing:
            self._health.status.end()

    @property
    def _jlistener(self) -> JavaObject:
        if self._java is None:
            jvm: Any = SparkContext._jvm  # noqa: SLF001 (as in the overridden method)
            self._java = jvm.PythonStreamingQueryListenerWrapper(_Listener(self))
        return self._java


class _Listener(JStreamingQueryListener):
    """Gets the progress of a batch as JSON by one call to the JVM.

    PySpark's own listener makes a Python object of it, by about a hundred calls to the JVM for every batch. Each call
    searches all jars for classes. That takes a quarter of the time of a small batch.
    """

    def __init__(self, listener: HealthListener) -> None:
        super().__init__(listener)
        self._listener = listener

    def onQueryProgress(self, jevent: JavaObject) -> None:
        self._listener.progressed(jevent.progress().json())
