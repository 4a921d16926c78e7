"""`tallystream.spark.monitor` in a real job that is killed, beside Kafka's own tool and `tallystream lag`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support import commands as tallystream
from support.examples import PARTITIONS
from support.spark_flights import Flights
from support.wait import wait_until
from tallystream.kafka.group_offsets import Committed, GroupOffsets, OffsetsError, Partition
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.process import free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


class LagCollector:
    """`tallystream lag collect`, and `tallystream lag` with its store."""

    def __init__(self, flights: Flights, folder: Path) -> None:
        self._flights, self._store = flights, f"local:{folder / 'store.db'}"
        self.log = folder / "collector.log"
        self.arguments = ["lag", "collect", "--bootstrap-servers", flights.servers, "--store", self._store]
        self.arguments += ["--interval", "1", "--include", flights.group]

    def lag(self) -> dict[int, int]:
        """Return the lag of each partition by `tallystream lag`."""
        done = tallystream.run("lag", self._flights.group, "--json", "--store", self._store)
        groups: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
        return {one["partition"]: one["lag"] for group in groups for one in group["partitions"]}


def test_lag_and_counts_of_a_job_that_is_killed(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """Kafka's tool and `tallystream lag` show the same lag after each batch, and after kill -9.

    The job is killed while it works. The positions cover each record once. `spark.records` misses none, and
    `spark.rows` has none twice. When a job has ended, its last batch is counted and committed.
    """
    flights = Flights(broker.bootstrap_servers, admin, topic_prefix, tmp_path)
    collector = LagCollector(flights, tmp_path)
    job = flights.job()

    def shows(lag: list[int]) -> bool:
        wanted = dict(enumerate(lag))
        return collector.lag() == wanted and flights.tool() == wanted

    def wait_committed() -> None:
        wait_until(lambda: job.ended or flights.committed() == flights.produced, 300, "all records are committed")
        assert not job.ended, job.log.read_text()

    def counts() -> tuple[int, int]:
        return flights.count("spark.records"), flights.count("spark.rows")

    with tallystream.running(collector.log, *collector.arguments):
        try:
            flights.produce(300)
            job.start()
            for _ in range(2):
                wait_committed()
                wait_until(lambda: shows([0] * PARTITIONS), 60, "both show no lag")
                flights.produce(30)
            wait_committed()
            wait_until(lambda: counts() == (sum(flights.produced),) * 2, 60, "all are counted, each once")
            for _ in range(20):
                flights.produce(30)
                time.sleep(0.07)
            job.kill()
            flights.produce(7, to=1)
            behind = [end - at for end, at in zip(flights.produced, flights.committed(), strict=True)]
            assert behind[1] >= 7
            wait_until(lambda: shows(behind), 60, "both show the lag of the killed job")
            job = flights.job(ends=True)
            job.start()
            assert job.wait(300) == 0, job.log.read_text()
            assert flights.committed() == flights.produced
        finally:
            job.kill()
    assert flights.positions() == [(0, end) for end in flights.produced]
    records, rows = counts()
    assert records >= sum(flights.produced) >= rows


def test_offsets_of_a_group_never_decrease(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """A lower offset is not committed, also by another client. The text of a commit is read with its offset."""
    topic = topic_prefix + "events"
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    options = {"bootstrap.servers": broker.bootstrap_servers}
    groups = [GroupOffsets(options, topic_prefix + "job", time.monotonic) for _ in range(2)]

    def commits(offsets: dict[Partition, int], metadata: str) -> bool:
        try:
            groups[0].commit(offsets, metadata, timeout=10)
        except OffsetsError:  # the broker is creating the topic of offsets
            return False
        return True

    try:
        wait_until(lambda: commits({(topic, 0): 7, (topic, 1): 3}, "id 1"), 60, "the offsets are committed")
        groups[1].commit({(topic, 0): 5, (topic, 1): 4}, "id 2", timeout=30)
        assert groups[0].read([(topic, 0), (topic, 1)], timeout=30) == {
            (topic, 0): Committed(7, "id 1"),
            (topic, 1): Committed(4, "id 2"),
        }
        assert groups[0].beginning_offsets([(topic, 0)], timeout=30) == {(topic, 0): 0}
    finally:
        for group in groups:
            group.close()


def test_a_group_whose_brokers_do_not_answer() -> None:
    """Each call ends after its time limit with an error."""
    group = GroupOffsets({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, "job", time.monotonic)
    try:
        with pytest.raises(OffsetsError):
            group.commit({("events", 0): 1}, "id 1", timeout=0.5)
        with pytest.raises(OffsetsError):
            group.beginning_offsets([("events", 0)], timeout=0.5)
    finally:
        group.close()
