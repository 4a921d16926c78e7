"""The aggregator on a real standalone cluster: a master and two workers that share the checkpoint folder."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.aggregator import Aggregator
from support.cluster import Cluster, submit, with_environment
from support.exactness import assert_as_acknowledged, assert_exact, assert_published_once
from support.faults import RECOVERY_S
from support.fleet import Fleet
from support.kafka import end_offsets

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_killed_worker_loses_nothing_and_spark_submit_continues(
    broker: KafkaBroker, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After SIGKILL of the worker with the table, its executor and its Python under load, sums stay exact.

    The driver continues, and the other worker loads the table from the shared checkpoint. Then the same job continues
    under spark-submit on that worker, as in docs/deploy.md: exact by the replay and the journal, and published once.
    """
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, 40)
    fleet.publish(200)
    with Cluster(tmp_path / "cluster") as cluster:
        for name, value in cluster.env.items():
            monkeypatch.setenv(name, value)
        with Aggregator(
            broker.bootstrap_servers, topics.prefix, tmp_path, "--master", cluster.url, spark=True
        ) as aggregator:
            aggregator.start().wait_ready()
            with fleet.publishing():
                killed = cluster.kill_busy_worker()
                due = end_offsets(broker.bootstrap_servers, topics.metrics)
                seconds = aggregator.wait_committed(topics.metrics, due, RECOVERY_S, "the other worker continues")
            print(f"worker {killed} killed: offsets are committed again after {seconds:.1f} s")  # noqa: T201
            assert aggregator.restarts == 0, aggregator.output()
            assert_exact(broker, topics)
            assert aggregator.stop() == 0, aggregator.output()
        fleet.publish(100)
        script = tmp_path / "tally.py"
        script.write_text("from tallystream_cli.main import main\n\nmain()\n", encoding="utf-8")
        where = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topics.prefix)
        done = subprocess.run(
            submit(
                *("--master", cluster.url, "--executor-memory", "512m", str(script)),
                *("aggregate", *where, "--checkpoint", str(aggregator.checkpoint), "--catch-up"),
            ),
            env=with_environment({"PYSPARK_PYTHON": sys.executable}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert_exact(broker, topics)
    assert_as_acknowledged(broker, topics, [fleet])
    assert_published_once(broker, topics)
