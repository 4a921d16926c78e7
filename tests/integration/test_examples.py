"""The consumers and the Spark job of docs/examples as real processes: the counts are exactly what was processed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from support.examples import EXAMPLES, PARTITIONS, System
from support.kafka import read_topic
from support.wait import wait_until
from tallystream_aggregator import jars

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = 3000


@pytest.fixture
def system(broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path) -> System:
    return System(broker.bootstrap_servers, topic_prefix, admin, tmp_path)


@pytest.mark.parametrize("example", ["confluent_consumer.py", "aiokafka_consumer.py", "faststream_app.py"])
def test_a_consumer_loop(system: System, example: str) -> None:
    """After SIGTERM and after SIGKILL the counts are what was processed, and no record is missed.

    The count minus the covered offsets is what was processed twice: what the killed process had counted but not
    committed, so that the next one read it again.
    """
    command = [sys.executable, EXAMPLES / example, system.servers, system.input, "flights-1"]
    system.produce(RECORDS)
    process = system.start(*command)
    try:
        wait_until(lambda: system.count("flights.processed") > 0 or process.poll(), 180, "some are counted")
        system.end(process)
        counted = system.count("flights.processed")
        assert counted == system.covered("flights.processed.position") == system.committed()
        system.produce(3 * RECORDS)
        process = system.start(*command)
        wait_until(lambda: system.count("flights.processed") > counted, 180, "more are counted")
        process.kill()
        process.wait(60)
        process = system.start(*command)
        wait_until(lambda: system.lives() == 3 and system.committed() == 4 * RECORDS, 180, "all are committed")
        system.end(process)
    finally:
        process.kill()
        process.wait()
    assert system.count("flights.processed") - 4 * RECORDS == system.overlap("flights.processed.position")
    assert system.covered("flights.processed.position") == 4 * RECORDS


def run_spark(system: System, script: Path) -> None:
    """Run a job until it has read the input topic. A task has at most two attempts."""
    connector = ",".join(str(path) for path in jars.fetch("spark"))
    system.environment["PYSPARK_SUBMIT_ARGS"] = (
        f"--master local[2,2] --jars {connector} --conf spark.ui.enabled=false "
        "--conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 pyspark-shell"
    )
    process = system.start(sys.executable, script, system.servers, system.input, str(system.folder / "checkpoint"))
    try:
        assert process.wait(400) == 0, system.log.read_text()
    finally:
        process.kill()
        process.wait()


def test_spark_driver_and_executors(system: System) -> None:
    """The rows counted by the executors and by the driver, and the written rows, are the rows that were read."""
    system.produce(RECORDS)
    run_spark(system, EXAMPLES / "spark_job.py")
    assert system.count("scoring.rows") == system.count("driver.rows") == RECORDS
    assert len(read_topic(system.servers, system.input + "-scored")) == RECORDS
    (batch,) = system.sums()["driver.batch.seconds"]
    assert batch.count == 1


FAILING_JOB = """
import sys
sys.path.insert(0, {examples!r})
import spark_job
from pyspark import TaskContext
plain = spark_job.score

def score(batches, **where):
    task = TaskContext.get()
    fail = task.partitionId() if task.attemptNumber() == 0 else None
    for done in plain(batches, **where):
        if fail == 1:
            raise RuntimeError("during the task")
        yield done
    if fail == 0:
        raise RuntimeError("at the end")

if __name__ == "__main__":
    import failing_job
    from pyspark.sql import SparkSession
    SparkSession.builder.getOrCreate().sparkContext.addPyFile(__file__)
    spark_job.score = failing_job.score
    spark_job.main(*sys.argv[1:])
"""


def test_spark_counts_every_attempt_that_reported(system: System) -> None:
    """Of two tasks that fail and run again, the one that failed after its report is counted twice, the other once."""
    script = system.folder / "failing_job.py"
    script.write_text(FAILING_JOB.format(examples=str(EXAMPLES)))
    system.produce(RECORDS)
    run_spark(system, script)
    assert system.log.read_text().count("RuntimeError: during the task") > 0
    assert system.count("driver.rows") == RECORDS
    assert system.count("scoring.rows") == RECORDS + RECORDS // PARTITIONS
