"""Metrics, positions and the lag of the streaming queries of a PySpark job.

`monitor(spark, app="orders")` is all that a job needs. Importing this package imports neither PySpark nor the Kafka client.
"""

from __future__ import annotations

from tallystream.spark.monitoring import Monitor, monitor

__all__ = ["Monitor", "monitor"]
