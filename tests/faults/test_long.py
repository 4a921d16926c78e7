"""The fault suite at full size, `make faults`: kills, pauses, takeovers, outages and a full disk.

TALLYSTREAM_FAULTS_SHARE, a number from 0 to 1, reduces the size: 0.1 means a tenth of the kills.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from support import faults
from support.aggregator import Aggregator
from support.cluster.brokers import KafkaCluster
from support.cluster.faults import cluster_faults, mixed
from support.commands import run
from support.exactness import assert_as_acknowledged, assert_exact, dead_letters
from support.fleet import Fleet
from support.journals import some_stores
from support.kafka import latest_sums
from support.processes import send, tree
from support.steps import counter
from support.wait import wait_until
from tallystream.ulid import new_ulid
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.broker import KafkaBroker

LARGE = 10_000_000
NAMES = (
    '"ts":9,"offsets":9}',
    "a\nb",
    "\u202etxt.exe",
    "💥" * 200,
    "'; DROP TABLE x; --",
    "a,b=c d",
    "../../etc",
    " ",
)
RECORD_METRICS = 9_000


def snapshot(life: str, seq: int, metrics: list[dict[str, Any]]) -> bytes:
    """Return a snapshot of the app "hostile"."""
    head = {"v": 1, "app": "hostile", "life": life, "part": 0, "seq": seq, "ts": 0, "every_ms": 1000, "final": False}
    return json.dumps({**head, "metrics": metrics}).encode()


def append(producer: Producer, topic: str, key: bytes, value: bytes) -> tuple[int, int]:
    """Append a record and return its partition and offset."""
    places: list[tuple[int, int]] = []

    def acknowledged(error: object, message: Any) -> None:
        assert error is None, error
        places.append((message.partition(), message.offset()))

    producer.produce(topic, key=key, value=value, on_delivery=acknowledged)
    assert producer.flush(60) == 0
    return places[0]


pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]
SHARE = float(os.environ.get("TALLYSTREAM_FAULTS_SHARE", "1"))
TAKEOVER_S = 30.0 * faults.PATIENCE


def scaled(number: int) -> int:
    """Return this share of `number`, at least one."""
    return max(1, round(number * SHARE))


def kills(**numbers: int) -> list[faults.Fault]:
    """Return this share of so many faults of each kind."""
    return [(kind, 0.0) for kind, number in numbers.items() for _ in range(scaled(number))]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[tuple[KafkaBroker, Topics]]:
    """A broker that only this test uses and may kill, and its topics."""
    with KafkaBroker(tmp_path / "broker") as broker:
        topics = Topics("faults-")
        create_topics(AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}), topics)
        yield broker, topics


def test_fifty_kills_of_the_driver_and_of_workers(own_broker: tuple[KafkaBroker, Topics], tmp_path: Path) -> None:
    """After fifty kills of the aggregator and ten of a worker, it has recovered each time, and sums are exact."""
    faults.random_kills(*own_broker, tmp_path, kills(driver=50, worker=10, lost=5, damaged=5), seed=50)


def test_five_outages_of_the_broker(own_broker: tuple[KafkaBroker, Topics], tmp_path: Path) -> None:
    """After five kills of the broker, one with 70 s of outage, sums are published again, and are exact."""
    outages = [("broker", seconds) for seconds in (3.0, 10.0, 70.0, 1.0, 20.0)[-scaled(5) :]]
    faults.random_kills(*own_broker, tmp_path, [("driver", 0.0), *outages], seed=70)


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
    pauses = [("pause", s) for s in (90.0, 5.0, 15.0, 45.0, 5.0, 15.0, 90.0, 5.0, 45.0, 15.0)[: scaled(10)]]
    outages = [("broker", seconds) for seconds in (20.0, 1.0, 3.0, 20.0, 1.0)[: scaled(5)]]
    wanted = [*kills(driver=40, lost=5, damaged=5, takeover=10), *pauses, *outages]
    faults.random_kills(broker, topics, tmp_path, wanted, seed=shards, shards=shards, spark=False)


def test_every_file_of_a_checkpoint_truncated(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """Each file, also a hidden one, is cut in half in its own copy: the sums are exact, without a command."""
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 4)
    fleet.publish(300)
    complete = tmp_path / "complete"
    with Aggregator(
        broker.bootstrap_servers, topics.prefix, tmp_path, "--epoch", "1", "--latency", "low", spark=True
    ) as aggregator:
        aggregator.checkpoint = complete
        aggregator.start().wait_ready()
        with fleet.publishing():
            faults.pause(10)
        assert_exact(broker, topics)
        assert aggregator.stop() == 0, aggregator.output()
    files = [path.relative_to(complete) for path in sorted(complete.rglob("*")) if path.is_file()]
    for number, path in enumerate(files[:: round(1 / SHARE)]):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(complete, copy)
        faults.damage(copy / path)
        fleet.publish(20)
        where = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topics.prefix)
        done = run("aggregate", *where, "--checkpoint", str(copy), "--catch-up", spark=True)
        assert done.returncode == 0, (path, done.stderr)
        assert_exact(broker, topics)
        assert_as_acknowledged(broker, topics, [fleet])
        aside = copy.with_name(f"{copy.name}.damaged-1").exists()
        print(f"{path} cut in half: {'made again from the rows' if aside else 'not noticed'}")  # noqa: T201


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
    (broker, topics), names = own_broker, 100_000
    resource = ConfigResource(ConfigResource.Type.TOPIC, topics.metrics)
    resource.add_incremental_config(
        ConfigEntry("max.message.bytes", str(2 * LARGE), incremental_operation=AlterConfigOpType.SET)
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 10)
    options = {"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 2 * LARGE, "log_level": 0}
    send = partial(append, Producer(options), topics.metrics)
    fleet.publish(100)
    large = send(b"large", b'{"name":"' + b"x" * LARGE + b'","value":1}')
    life = new_ulid(int(time.time() * 1000))
    beyond = set()
    for seq, first in enumerate(range(0, names, RECORD_METRICS), 1):
        metrics = [counter(1, f"n{number}") for number in range(first, min(names, first + RECORD_METRICS))]
        position = send(b"many", snapshot(life, seq, metrics))
        if first + len(metrics) > 10_000:
            beyond.add(position)
    hostile = new_ulid(int(time.time() * 1000))
    send(b"hostile", snapshot(hostile, 1, [counter(3, name) for name in NAMES]))
    fleet.publish(100)
    with Aggregator(broker.bootstrap_servers, topics.prefix, tmp_path) as aggregator:
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        assert aggregator.stop() == 0, aggregator.output()
    found = latest_sums(broker.bootstrap_servers, topics.agg)
    assert {key[1] for key in found if key[0] == "hostile"} >= set(NAMES)
    assert len([key for key in found if key[1].startswith("n") and key[0] == "hostile"]) == 10_000
    assert dead_letters(broker, topics) == {large, *beyond, *fleet.journal.malformed}


def test_a_takeover_at_fifty_thousand_rows(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """The writer is stopped with SIGSTOP: within 30 s the standby publishes its first new sums, and they are exact."""
    counters, instances = 50, scaled(1000)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    lives = [new_ulid(int(time.time() * 1000)) for _ in range(instances)]

    def publish(instance: int, seq: int, count: int) -> None:
        metrics = [counter(count, f"n{number}") for number in range(counters)]
        value = snapshot(lives[instance], seq, metrics)
        producer.produce(topics.metrics, key=f"instance-{instance}".encode(), value=value)
        producer.poll(0)

    def all_sums_are(count: int) -> bool:
        found = latest_sums(broker.bootstrap_servers, topics.agg).values()
        return [row.count for row in found if row.type == "counter"] == [count] * counters

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


@pytest.mark.timeout(7200)
def test_a_hundred_faults_of_three_brokers(tmp_path: Path) -> None:
    """Brokers whose clocks differ by 90 s are killed, paused, cut off and slow: sums are exact, no count falls."""
    with KafkaCluster(tmp_path / "cluster") as cluster:
        topics = Topics("three-")
        create_topics(AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}), topics)
        cluster_faults(cluster, topics, tmp_path, mixed(scaled(100), seed=3), seed=3, stores=some_stores(tmp_path))
