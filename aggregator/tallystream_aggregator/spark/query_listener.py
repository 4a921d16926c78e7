"""How a query's health learns of its batches: Spark's listener, and what it observes of the rows on their way out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener

from tallystream_aggregator.health.internal_metrics import OBSERVED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from tallystream_aggregator.health import Health


class HealthListener(StreamingQueryListener):
    """Tells `health` what becomes of the session's query, in a thread of Spark's: it never delays a batch."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self.changing: set[str] = set()
        """Runs of the query that end because another mode takes over: no end of the query."""
        self.last: Mapping[str, Any] | None = None
        """What Spark told of the batch that was finished last. To ask the query for it costs many calls to the JVM."""
        self._java: JavaObject | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """The query has begun."""
        self._health.status.run()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done."""
        self.progressed(event.progress.json)

    def progressed(self, told: str) -> None:
        """A batch is done, of which Spark tells this, as JSON."""
        self.last = json.loads(told)
        self._health.progress(self.last)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """The query looked for records and found none."""
        self._health.status.checked()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The query has ended, or goes on in another mode."""
        if event.exception is not None or str(event.runId) not in self.changing:
            self._health.status.end()

    @property
    def _jlistener(self) -> JavaObject:
        if self._java is None:
            jvm: Any = SparkContext._jvm  # noqa: SLF001 (as the method that this one stands for)
            self._java = jvm.PythonStreamingQueryListenerWrapper(_Listener(self))
        return self._java


class _Listener(JStreamingQueryListener):
    """Takes a progress as the text that the JVM makes of it in one call.

    PySpark's own makes an object of it first, by some hundred calls to the JVM for every batch, each of which looks for
    classes in all jars: a quarter of what a small batch costs.
    """

    def __init__(self, listener: HealthListener) -> None:
        super().__init__(listener)
        self._listener = listener

    def onQueryProgress(self, jevent: JavaObject) -> None:
        self._listener.progressed(jevent.progress().json())


def observed(out: DataFrame, topic: str) -> DataFrame:
    """Return the rows for the sink as they are, and have the shards' records among them told with the batch.

    `topic` is `metrics-table`.
    """
    of_shard = (f.col("topic") == topic) & f.col("key").cast("string").startswith('["shard",')
    return out.observe(OBSERVED, f.collect_list(f.when(of_shard, f.col("value").cast("string"))).alias("shards"))
