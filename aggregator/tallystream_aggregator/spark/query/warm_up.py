"""Have Python workers ready when a query begins: their imports and its planning go side by side."""

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
    """Start so many Python workers, as many as run at once at most, with what the table needs; return at once.

    Spark gives them to the query's tasks. Nothing depends on it: where it fails, the first batch starts them.
    """
    thread = threading.Thread(target=_warm, args=(session, workers), name="tallystream-warm", daemon=True)
    thread.start()
    return thread


def _warm(session: SparkSession, workers: int) -> None:
    context = session.sparkContext
    try:
        workers = min(workers, context.defaultParallelism)
        context.parallelize(range(workers), workers).mapPartitions(_imported).count()
    except (Py4JError, OSError) as error:  # the session has ended: so early a stop is no matter
        log.debug("the Python workers were not warmed: %s", error)


def _imported(numbers: Iterable[int]) -> Iterable[int]:
    import pandas  # noqa: F401, ICN001
    import pyspark.sql.streaming.stateful_processor_api_client  # noqa: F401

    import tallystream_aggregator.spark.query.processor  # noqa: F401

    return numbers
