"""An Airflow DAG whose tasks count the rows that they load.

    airflow dags test flights_etl

Airflow finds the file in its folder of DAGs. Requires tallystream and Airflow 3.
"""

from __future__ import annotations

from airflow.sdk import dag, task

from tallystream import report


@dag(schedule=None)  # type: ignore[untyped-decorator]
def flights_etl() -> None:
    """Load the rows of three parts, each in a task of its own."""

    @task  # type: ignore[untyped-decorator]
    def load(part: int) -> None:
        registry = report("flights-etl")  # in the task: the scheduler imports this file too, and counts nothing
        with registry.timer("load").time():
            rows = part * 1000  # the application's work
        registry.counter("rows.loaded").inc(rows)
        registry.reporter.stop()  # makes the last report

    load.expand(part=[1, 2, 3])


flights_etl()
