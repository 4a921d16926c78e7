"""Start Python workers while a query is planned, so that their imports don't delay the first batch."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def warm(session: SparkSession, workers: int = 1) -> threading.Thread:
    """Start Python workers with the table's imports in a thread, and return it. Don't wait for them.

    No more workers are started than can run at once. Spark uses them for the query's tasks. If this fails, the first
    batch starts them.
    """
    thread = threading.Thread(target=_warm, args=(session, workers), name="tallystream-warm", daemon=True)
    thread.start()
    return thread


def _warm(session: SparkSession, workers: int) -> None:
    context = session.sparkContext
    try:
        workers = min(workers, context.defaultParallelism)
        context.parallelize(range(workers), workers).mapPartitions(_imported).count()
    except (Py4JError, OSError) as error:  # the session has ended by an early stop
        log.debug("the Python workers were not warmed: %s", error)


def _imported(numbers: Iterable[int]) -> Iterable[int]:
    import pandas  # noqa: F401, ICN001
    import pyspark.sql.streaming.stateful_processor_api_client  # noqa: F401

    import tallystream_aggregator.spark.query.processor  # noqa: F401

    return numbers
