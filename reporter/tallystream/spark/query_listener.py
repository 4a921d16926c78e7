"""Spark's listener of streaming queries. It only passes on what it gets, so that Spark never waits.

This is the only module that imports PySpark. The classes are the same for a classic session and for Spark Connect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from tallystream.spark.recorder import QueryRecorder


class QueryListener(StreamingQueryListener):
    """Passes on each event of a query to the recorder."""

    def __init__(self, recorder: QueryRecorder) -> None:
        self._recorder = recorder

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Pass on the run and the name of a query. Spark waits for it."""
        self._recorder.started(str(event.runId), event.name or str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Pass on the progress of a batch."""
        self._recorder.progress(event.progress.json)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: there was no batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Pass on how a query ended."""
        self._recorder.terminated(str(event.runId), str(event.id), failed=event.exception is not None)
