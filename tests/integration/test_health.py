"""The health of a real aggregator: what it says by HTTP, and what it reports to `metrics`."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

import pytest

from support.application import Application
from support.health import ask, base, internal_metrics
from support.kafka import aggregator, committed, latest_sums, read_topic
from support.wait import wait_until
from tallystream_aggregator.health.internal_metrics import BY_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration

LIMIT_S = 300.0


def test_an_aggregator_says_how_it_is_and_its_totals_survive_a_kill(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures equal what was published; after SIGKILL they go on; the topic has them under the app tallystream."""
    application = Application(broker.bootstrap_servers, topics.metrics, seed=3)
    application.publish(300)
    group, log = topic_prefix + "tallystream-aggregator", tmp_path / "aggregate.log"
    port = ("--http-port", "0")

    def all_taken() -> bool:
        end = len(read_topic(broker.bootstrap_servers, topics.metrics))
        return committed(broker.bootstrap_servers, group, topics.metrics) >= end

    with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path, *port) as process:
        url = base(log)
        wait_until(all_taken, LIMIT_S, "all is taken")
        assert ask(url + "/healthz") == (200, '{"ok": true, "command": "aggregate", "stage": "running"}\n')
        wait_until(lambda: ask(url + "/readyz")[0] == 200, LIMIT_S, "the first batch is told")
        end = len(read_topic(broker.bootstrap_servers, topics.metrics))
        wait_until(lambda: internal_metrics(url).get("tallystream_table_records_total") == end, LIMIT_S, "all is told")
        found = internal_metrics(url)
        process.kill()
        process.wait(60)
    dead = len(read_topic(broker.bootstrap_servers, topics.dead))
    assert found["tallystream_table_dead_letters_total"] == dead == application.poison
    assert found["tallystream_input_records_total"] == end
    assert found["tallystream_table_stale_total"] > 0
    (processed,) = (
        row for key, row in latest_sums(broker.bootstrap_servers, topics.agg).items() if key[2] == "counter"
    )
    assert found["tallystream_table_instances"] == processed.instances > 10
    assert found["tallystream_table_metrics"] == 4
    assert found["tallystream_epoch"] == 1
    monkeypatch.delenv("TALLYSTREAM_NO_OWN_METRICS")
    monkeypatch.setenv("TALLYSTREAM_LOG_FORMAT", "json")
    log.rename(tmp_path / "killed.log")  # the JVM of the killed one may still write to it
    with aggregator(broker.bootstrap_servers, topic_prefix, tmp_path, *port) as process:
        url = base(log)
        application.publish(100)

        def reported() -> bool:
            return ("tallystream", "tallystream.table.records", "gauge", (("command", "aggregate"),)) in latest_sums(
                broker.bootstrap_servers, topics.agg
            )

        wait_until(reported, LIMIT_S, "its own figures are summed")
        found = internal_metrics(url)
        assert found["tallystream_epoch"] == 2
        assert found["tallystream_table_records_total"] >= found["tallystream_input_records_total"] + end
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    lines = log.read_text().splitlines()
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    assert {"ts", "level", "logger", "message"} <= set.intersection(*map(set, logged))
    # Others print too (the JVM before its log begins, Spark's workers, librdkafka), but no log is text any more.
    assert not [line for line in lines if re.match(r"\d{4}-\d\d-\d\d ", line)]
    own = [json.loads(r.value or b"") for r in read_topic(broker.bootstrap_servers, topics.metrics) if _ours(r.key)]
    assert {record["app"] for record in own} == {"tallystream"}
    assert {metric["name"] for record in own for metric in record["metrics"]} <= set(BY_NAME)
    assert own[-1]["final"]
    batches = [m["count"] for record in own for m in record["metrics"] if m["name"] == "tallystream.batches"]
    assert batches == sorted(batches)
    assert len(read_topic(broker.bootstrap_servers, topics.dead)) == application.poison


def _ours(key: bytes | None) -> bool:
    return (key or b"").startswith(b"aggregate@")
