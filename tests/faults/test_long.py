"""The fault suite at full size, `make faults`: kills, pauses, takeovers, outages and a full disk.

TALLYSTREAM_FAULTS_SHARE, a number from 0 to 1, reduces the size: 0.1 means a tenth of the kills.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from support import faults, hostile_records
from support.aggregator import Aggregator
from support.exactness import assert_as_acknowledged, assert_exact
from support.fleet import Fleet
from support.kafka import latest_sums
from support.processes import send, tree
from support.wait import wait_until
from tallystream.ulid import new_ulid
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

SHARE = float(os.environ.get("TALLYSTREAM_FAULTS_SHARE", "1"))
TAKEOVER_S = 30.0 * faults.PATIENCE


def scaled(number: int) -> int:
    """Return this share of `number`, at least one."""
    return max(1, round(number * SHARE))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[tuple[KafkaBroker, Topics]]:
    """A broker that only this test uses and may kill, and its topics."""
    with KafkaBroker(tmp_path / "broker") as broker:
        topics = Topics("faults-")
        create_topics(AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}), topics)
        yield broker, topics


def test_fifty_kills_of_the_driver_and_of_workers(own_broker: tuple[KafkaBroker, Topics], tmp_path: Path) -> None:
    """After fifty kills of the aggregator and ten of a worker, it has recovered each time, and sums are exact."""
    faults.random_kills(*own_broker, tmp_path, faults.Faults(scaled(50), scaled(10), (), scaled(5), scaled(5)), seed=50)


def test_five_outages_of_the_broker(own_broker: tuple[KafkaBroker, Topics], tmp_path: Path) -> None:
    """After five kills of the broker, one with 70 s of outage, sums are published again, and are exact."""
    outages = (3.0, 10.0, 70.0, 1.0, 20.0)[-scaled(5) :]
    faults.random_kills(*own_broker, tmp_path, faults.Faults(1, 0, outages), seed=70)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_hundred_kills_twenty_pauses_and_twenty_takeovers_without_spark(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path, shards: int
) -> None:
    """The loops go on by themselves and exactly after kills, pauses of 5 to 90 s, takeovers by a standby and outages.

    Half of the faults are for one shard, half for two. A reader of `metrics-agg` and `metrics-table` sees no count that
    falls, and nothing of two moments.
    """
    topics = Topics(topic_prefix)
    create_topics(admin, topics, partitions=2, shards=shards)
    pauses_s = (90.0, 5.0, 15.0, 45.0, 5.0, 15.0, 90.0, 5.0, 45.0, 15.0)[: scaled(10)]
    outages_s = (20.0, 1.0, 3.0, 20.0, 1.0)[: scaled(5)]
    size = faults.Faults(scaled(40), 0, outages_s, scaled(5), scaled(5), pauses_s, takeovers=scaled(10))
    faults.random_kills(broker, topics, tmp_path, size, seed=shards, shards=shards, spark=False)


def test_every_file_of_a_checkpoint_truncated(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """Each file, also a hidden one, is cut in half in its own copy: the sums are exact, without a command."""
    faults.truncated_files(broker, topics, tmp_path, every=round(1 / SHARE))


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small file system can't be mounted here: {done.stderr.strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_full_disk_is_a_clean_stop(
    broker: KafkaBroker, topics: Topics, tmp_path: Path, small_file_system: Path
) -> None:
    """If the checkpoint's disk is full, the aggregator stops with an error. With free space, it continues exactly."""
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 7)
    fleet.publish(200)
    ballast = small_file_system / "ballast"
    with Aggregator(
        broker.bootstrap_servers, topics.prefix, small_file_system, "--latency", "low", spark=True
    ) as aggregator:
        aggregator.log = tmp_path / "aggregate.log"  # not on the full disk
        aggregator.start().wait_ready()
        with fleet.publishing():
            with ballast.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(65_536))
            code = aggregator.wait_exit(faults.RECOVERY_S, "the disk is full: the aggregator stops")
        assert code not in (0, None), aggregator.output()
        error = faults.last_line(aggregator.output())
        assert error.startswith(f"query aggregate: the disk of the checkpoint {aggregator.checkpoint} is full, or ")
        print(f"its error: {error}")  # noqa: T201
        ballast.unlink()
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        assert_as_acknowledged(broker, topics, [fleet])
        assert aggregator.stop() == 0, aggregator.output()


def test_hostile_records_affect_no_other_sum(own_broker: tuple[KafkaBroker, Topics], tmp_path: Path) -> None:
    """With a record of 10 MB, 100,000 names and hostile names, limits hold and all other sums are exact."""
    hostile_records.check_limits(*own_broker, tmp_path, names=100_000)


def test_lives_that_come_back_within_and_after_the_limit(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """A silent life continues within 24 h after its `prev`, and is counted once. A later record is a dead letter."""
    hostile_records.check_late_lives(broker, topics, tmp_path)


def test_a_takeover_at_fifty_thousand_rows(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """The writer is stopped with SIGSTOP: within 30 s the standby publishes its first new sums, and they are exact."""
    counters, instances = 50, scaled(1000)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    lives = [new_ulid(int(time.time() * 1000)) for _ in range(instances)]

    def publish(instance: int, seq: int, count: int) -> None:
        metrics = [hostile_records.counter(f"n{number}", count) for number in range(counters)]
        value = hostile_records.snapshot(lives[instance], seq, metrics)
        producer.produce(topics.metrics, key=f"instance-{instance}".encode(), value=value)
        producer.poll(0)

    def all_sums_are(count: int) -> bool:
        found = latest_sums(broker.bootstrap_servers, topics.agg).values()
        return [row.count for row in found] == [count] * counters

    for instance in range(instances):
        publish(instance, 1, 1)
    assert producer.flush(60) == 0
    first = Aggregator(broker.bootstrap_servers, topics.prefix, tmp_path / "first", spark=True)
    second = Aggregator(broker.bootstrap_servers, topics.prefix, tmp_path / "second", spark=True)
    second.checkpoint = first.checkpoint
    for each in (first, second):
        each.folder.mkdir()
    with first, second:
        first.start().wait_ready()
        wait_until(lambda: all_sums_are(instances), 120, f"{instances * counters:,} rows are summed")
        second.start()
        wait_until(lambda: "waiting for the lease" in second.output(), 120, "the second is a standby")
        stopped = tree(first.process.pid)
        send(stopped, signal.SIGSTOP)
        publish(0, 2, 11)
        assert producer.flush(60) == 0
        wait_until(lambda: all_sums_are(instances + 10), TAKEOVER_S, "the second publishes new sums")
        send(stopped, signal.SIGCONT)
        assert first.process.wait(120) == 1, first.output()
        assert_exact(broker, topics)
        assert second.stop() == 0, second.output()
