"""`tallystream ship --store prometheus:…` on a real broker, and `tallystream sums` of a topic that does not exist."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from support.commands import run
from support.health import ask, base, internal_metrics
from support.levels import exposed, samples
from support.processes import kill_tree
from support.shipping import Sums, shipper
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration

LIMIT_S = 120.0
STORE = StoreSettings.parse("prometheus:0", env={})


def _address(process: subprocess.Popen[bytes], log: Path, starts: int) -> str:
    def served() -> bool:
        assert process.poll() is None, log.read_text()
        return log.read_text().count("sums are served at ") == starts

    wait_until(served, LIMIT_S, "the sink listens")
    return log.read_text().rpartition("sums are served at http://")[2].partition("/metrics")[0]


def _first(address: str, log: Path) -> str:
    """Return the first response with status 200. All earlier ones must have status 503."""
    found: list[str] = []

    def answered() -> bool:
        status, text = ask(f"http://{address}/metrics")
        if status == 200:
            found.append(text)
        else:
            assert (status, text) == (503, "the newest sums are not known yet\n"), log.read_text()
        return bool(found)

    wait_until(answered, LIMIT_S, "the sums are shown", poll=0.005)
    return found[0]


def test_the_newest_sums_are_shown_after_a_kill_too(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """After a start and after a kill -9, the first response with sums has the newest sum of every metric.

    Sums of a transaction that is aborted and other records are not shown. The health check is ready, and SIGTERM ends
    it with exit code 0.
    """
    wanted = Sums(broker.bootstrap_servers, topics.agg)
    wanted.publish(20_000)
    log = tmp_path / "ship.log"
    health = ("--http-port", "0")
    with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, STORE, *health) as process:
        address = _address(process, log, 1)
        assert samples(_first(address, log)) == exposed(wanted.latest())
        wanted.publish(300)
        wait_until(lambda: samples(_first(address, log)) == exposed(wanted.latest()), LIMIT_S, "later sums are shown")
        kill_tree(process)
    wanted.publish(2_000)
    wanted.publish_aborted(50)
    wanted.publish_noise()
    with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, STORE, *health) as process:
        address = _address(process, log, 2)
        assert samples(_first(address, log)) == exposed(wanted.latest())
        url = base(log)
        assert ask(url + "/readyz")[0] == 200
        shown = internal_metrics(url)
        assert shown["tallystream_ship_unreadable_total"] >= 1
        assert (tmp_path / "ready").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0


def test_a_topic_that_does_not_exist_is_exit_code_3(broker: KafkaBroker) -> None:
    """A sentence names the topic."""
    done = run("sums", "--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", "no-such-")
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("The topic can't be read: no-such-metrics-agg: ")
