"""The stream of records that each plan has, made when it is asked for, or ahead of that, while something else waits."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tallystream_aggregator.spark.query.modes import Plan
from tallystream_aggregator.spark.query.query import backlog, live

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.spark.query.settings import AggregateSettings

log = logging.getLogger(__name__)


class Streams:
    """Makes each plan's stream, the backlog's once: Spark starts a Python process to ask what its source is like."""

    def __init__(self, session: SparkSession, settings: AggregateSettings, topics: Topics, *, shards: int) -> None:
        self._session, self._settings, self._topics, self._shards = session, settings, topics, shards
        self._lock = threading.Lock()
        self._backlog: DataFrame | None = None

    def prepare(self) -> None:
        """Make the backlog's stream in a thread. Nothing depends on it: where that fails, it is made when needed."""
        threading.Thread(target=self._prepare, name="tallystream-prepare", daemon=True).start()

    def of(self, plan: Plan, begin: Mapping[str, Mapping[str, int]]) -> DataFrame:
        """Return a plan's stream; `begin` is where a new checkpoint begins."""
        if plan is Plan.LIVE:
            return live(self._session, self._settings, self._topics, begin)
        return self._of_backlog()

    def _of_backlog(self) -> DataFrame:
        with self._lock:
            if self._backlog is None:
                self._backlog = backlog(self._session, self._settings, self._topics, shards=self._shards)
            return self._backlog

    def _prepare(self) -> None:
        try:
            self._of_backlog()
        except (Py4JError, PySparkException, OSError) as error:  # the session has ended: so early a stop is no matter
            log.debug("the backlog's stream was not made ahead: %s", error)
