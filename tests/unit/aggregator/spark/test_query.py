"""The preparation of the aggregator's query."""

from __future__ import annotations

from tallystream_aggregator.spark.query.query import import_modules


def test_the_modules_that_warm_workers_import_exist() -> None:
    """One of them is private to PySpark, and a failure in a worker would only be logged (docs/cluster.md)."""
    assert list(import_modules([1])) == [1]
