"""The aggregator's benchmark at a tiny size: wrong sums fail the run."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.aggregator.backlog import backlog
from benchmarks.aggregator.load import Fleet, Updates
from benchmarks.aggregator.sides import Ours, SideError
from support.commands import command
from tallystream_aggregator.kafka.topics import Topics
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration

FLEET = Fleet(instances=20, metrics=5)
N = 500
PROGRAM = """
import json, sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1]})
for sums in json.loads(sys.argv[3]):
    for name, total in sums:
        producer.produce(sys.argv[2], json.dumps({"name": name, "count": total}), name)
    producer.flush(30)
print("done")
time.sleep(float(sys.argv[4]))
"""


class WithoutSpark(Ours):
    """The real command with loops in threads, which start in a tenth of the time."""

    def command(self, bootstrap_servers: str, prefix: str, folder: Path) -> list[str]:
        """Return its command line."""
        _, *arguments = super().command(bootstrap_servers, prefix, folder)
        return command(*arguments)


@dataclass
class Scripted:
    """A side that publishes the given sums, then sleeps for `rest_s` seconds."""

    sums: list[list[int]]
    rest_s: float = 60.0
    name: str = "scripted"

    def output(self, prefix: str) -> str:
        """Return the topic of the sums."""
        return Topics(prefix).agg

    def command(self, bootstrap_servers: str, prefix: str, folder: Path) -> list[str]:  # noqa: ARG002 (an argument of every side)
        """Return its command line."""
        rows = [list(zip(FLEET.names, sums, strict=True)) for sums in self.sums]
        output = self.output(prefix)
        return [sys.executable, "-c", PROGRAM, bootstrap_servers, output, json.dumps(rows), str(self.rest_s)]

    def ready(self, folder: Path) -> bool:
        """Fail: the benchmark of a backlog does not call it."""
        raise NotImplementedError


@pytest.fixture
def expected() -> list[int]:
    """The sums of the load."""
    updates = Updates(FLEET)
    updates.take(N)
    return [int(total) for total in updates.sums]


def test_our_sums_are_checked_and_their_cost_is_measured(broker: KafkaBroker, tmp_path: Path) -> None:
    """On a real broker the sums are exact, and the CPU and memory of its processes are measured."""
    side = WithoutSpark()
    found = backlog(broker.bootstrap_servers, side, tmp_path, n=N, form="snapshots", fleet=FLEET, max_wait_s=300)
    assert found["exact"] is True
    assert (found["updates"], found["records"]) == (N, N // FLEET.metrics)
    assert found["wall_s"] > 0
    assert found["cpu_s"] > 0
    assert found["peak_mb"] > 10


def test_a_wrong_sum_is_never_a_result(broker: KafkaBroker, tmp_path: Path, expected: list[int]) -> None:
    """If one sum is wrong, the run fails, and the error says how many were right."""
    wrong = [*expected[:3], expected[3] + 1, *expected[4:]]
    with pytest.raises(SideError, match="4 of 5 sums"):
        backlog(broker.bootstrap_servers, Scripted([wrong]), tmp_path, n=N, form="singles", fleet=FLEET, max_wait_s=3)
