"""The aggregator on a real broker: applications that restart and are killed, and a start in the middle of the topic."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from support.aggregator import running_aggregator
from support.commands import run
from support.exactness import assert_exact
from support.fleet import Fleet
from support.health import ask, base, internal_metrics
from support.kafka import committed, end_offsets, latest_sums, read_topic
from support.wait import wait_until
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sinks.base import Field
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_new_checkpoint_in_the_middle_of_the_topic_is_refused(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """If the first records are deleted, the command exits with an error and code 2, unless an option accepts that.

    Then `verify` replays the table from where it began, as its positions row says.
    """
    Fleet(broker.bootstrap_servers, topics.metrics, seed=1).publish(20)
    for future in admin.delete_records([TopicPartition(topics.metrics, 0, 10)]).values():
        future.result()
    arguments = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix)
    refused = run("aggregate", *arguments, "--checkpoint", str(tmp_path / "checkpoint"))
    assert refused.returncode == 2, refused.stderr
    assert "--from earliest" in refused.stderr.strip().splitlines()[-1]
    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path, "--from", "earliest"):
        assert_exact(broker, topics)
    verified = run("verify", *arguments)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    rows = [json.loads(record.value or b"") for record in read_topic(broker.bootstrap_servers, topics.ledger)]
    assert [row["start"] for row in rows] == [{topics.metrics: {"0": 10}}]


class Instance:
    """A process that embeds the reporter, as an application does (support/reporting_process.py)."""

    def __init__(self, broker: KafkaBroker, topic: str, instance: str, folder: Path) -> None:
        script = Path(__file__).parent.parent / "support" / "reporting_process.py"
        self.journal = folder / f"{instance}.journal"
        self.process = subprocess.Popen(
            [sys.executable, str(script), broker.bootstrap_servers, topic, instance, str(self.journal)]
        )

    def acknowledged(self) -> int:
        """Return the count that the broker acknowledged, over all processes of this instance ID."""
        if not self.journal.exists():
            return 0
        counts: dict[str, int] = {}
        for line in self.journal.read_text().splitlines():
            process, count = line.split()
            counts[process] = int(count)
        return sum(counts.values())

    def wait_acknowledged(self, more: int) -> None:
        """Wait until the acknowledged count has grown by more than this."""
        before = self.acknowledged()
        wait_until(lambda: self.acknowledged() > before + more, 60, f"{self.journal.stem} counts")


def _shipped(store: StoreSettings) -> dict[str, Field | None]:
    """Return the newest point of the counter in the store."""
    with closing(open_reader(store)) as reader:
        found = reader.read("records.processed", ["count", "lives"], start_ms=0, end_ms=2**62)
    return {"count": None, "lives": None} | {one.field: one.values[-1] for one in found}


def test_restarted_and_killed_instances_lose_no_acknowledged_increment(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """One instance is stopped and one is killed with SIGKILL; both start again under the same IDs.

    The sum equals the replay's, includes every increment that was acknowledged, and never decreases. An instance that
    is killed while no aggregator runs is detected after the next start. That one also ships its sums, by `--store`, and
    its /metrics say so.
    """
    instances = {name: Instance(broker, topics.metrics, name, tmp_path) for name in ("orders-1", "orders-2")}

    def living() -> list[int]:
        found = latest_sums(broker.bootstrap_servers, topics.agg)
        return [row.lives for (_, name, _, _), row in found.items() if name == "records.processed"]

    def summed() -> int:
        group = topic_prefix + "tallystream-aggregator"
        return committed(broker.bootstrap_servers, group, topics.metrics)

    try:
        with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path):
            for name, number in (("orders-1", signal.SIGTERM), ("orders-2", signal.SIGKILL)):
                instances[name].wait_acknowledged(50)
                instances[name].process.send_signal(number)
                assert instances[name].process.wait(30) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
                instances[name] = Instance(broker, topics.metrics, name, tmp_path)
                instances[name].wait_acknowledged(50)
            instances["orders-1"].process.terminate()
            assert instances["orders-1"].process.wait(30) == 0
            (end,) = end_offsets(broker.bootstrap_servers, topics.metrics).values()
            wait_until(lambda: summed() >= end and living() == [1], 120, "one instance is living")
    finally:
        for instance in instances.values():
            instance.process.kill()
            instance.process.wait(30)
    assert living() == [1]
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}", env={})
    options = ("--store", store.spec, "--http-port", "0")
    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path, *options):
        wait_until(lambda: living() == [0], 120, "its silence is detected")
        wanted = assert_exact(broker, topics)
        wait_until(lambda: _shipped(store)["lives"] == 0, 60, "the newest sum is shipped")
        url = base(tmp_path / "aggregate.log")
        wait_until(lambda: ask(url + "/readyz")[0] == 200, 60, "the shipper is ready, too")
        assert internal_metrics(url)["tallystream_ship_points_total"] > 0
    assert _shipped(store)["count"] == wanted["orders", "records.processed", "counter", ()]["count"]
    total = wanted["orders", "records.processed", "counter", ()]["count"]
    assert total >= sum(instance.acknowledged() for instance in instances.values()) > 200
    rows = [json.loads(record.value or b"") for record in read_topic(broker.bootstrap_servers, topics.agg)]
    counts = [row["count"] for row in rows if row["name"] == "records.processed"]
    assert counts == sorted(counts)
