"""How a query's health learns of its batches: Spark's listener, and what it observes of the rows on their way out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryListener

from tallystream.aggregator.health.progress import OBSERVED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from tallystream.aggregator.health import Health


class HealthListener(StreamingQueryListener):
    """Tells `health` what becomes of the session's query, in a thread of Spark's: it never delays a batch."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self.changing: set[str] = set()
        """Runs of the query that end because another plan takes over: no end of the query."""
        self.last: Mapping[str, Any] | None = None
        """What Spark told of the batch that was finished last. To ask the query for it costs many calls to the JVM."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """The query has begun."""
        self._health.status.run()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done."""
        self.last = json.loads(event.progress.json)
        self._health.progress(self.last)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """The query looked for records and found none."""
        self._health.status.look()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The query has ended, or goes on under another plan."""
        if event.exception is not None or str(event.runId) not in self.changing:
            self._health.status.end()


def observed(out: DataFrame, topic: str) -> DataFrame:
    """Return the rows for the sink as they are, and have the shards' records among them told with the batch.

    `topic` is `metrics-table`.
    """
    of_shard = (f.col("topic") == topic) & f.col("key").cast("string").startswith('["shard",')
    return out.observe(OBSERVED, f.collect_list(f.when(of_shard, f.col("value").cast("string"))).alias("shards"))
