"""Metrics, positions and the lag of the streaming queries of a PySpark job.

`monitor(spark, app="orders")` is all that a job needs. Importing this package does not import PySpark.
"""

from __future__ import annotations

from tallystream.spark.monitoring import Monitor, monitor

__all__ = ["Monitor", "monitor"]
