"""The job of the guide on each version of PySpark, classic and with Spark Connect: `make spark-versions`."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.spark_flights import CONNECTORS, Flights
from support.wait import wait_until
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("connect", [False, True], ids=["classic", "connect"])
@pytest.mark.parametrize("version", CONNECTORS)
def test_a_version(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path, version: str, *, connect: bool
) -> None:
    """After a kill and a restart the offsets are committed, and positions and counts are those of the records."""
    flights = Flights(broker.bootstrap_servers, admin, topic_prefix, tmp_path, version, connect=connect)
    job = flights.job()
    try:
        for records in (300, 30):
            flights.produce(records)
            job.start()
            wait_until(lambda: job.ended or flights.committed() == flights.produced, 300, "the batch is committed")
            assert not job.ended, job.log.read_text()
            flights.produce(9)
            wait_until(lambda: flights.committed() == flights.produced, 60, "the next batch is committed")
            job.kill()
    finally:
        job.kill()
    assert flights.positions() == [(0, end) for end in flights.produced]
    assert flights.count("spark.records") == flights.count("spark.rows") == sum(flights.produced)
    (batches,) = flights.sums()["spark.batches"]
    (duration,) = flights.sums()["spark.batch.duration"]
    assert batches.tags == {"query": "scores"}
    assert batches.count == duration.count
