"""The health of a real aggregator: its HTTP endpoints, and the internal metrics that it reports to `metrics`."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from support.aggregator import running_aggregator
from support.exactness import wait_all_committed
from support.fleet import NAME, Fleet
from support.health import ask, base, internal_metrics
from support.kafka import latest_sums, read_topic
from support.stores import content
from support.wait import wait_until
from tallystream_aggregator.instances import INSTANCES
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LIMIT_S = 300.0


def wait_shipped(url: str, store: StoreSettings) -> None:
    """Wait until the aggregator with this address has shipped sums to its store."""
    wait_until(lambda: ask(url + "/readyz")[0] == 200, LIMIT_S, "the shipper is ready, too")
    wait_until(lambda: bool(content(store, NAME, ["count"])), LIMIT_S, "its sums are in the store")
    assert internal_metrics(url)["tallystream_ship_points_total"] > 0


def test_internal_metrics_are_right_and_survive_a_kill(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They equal what was published and continue after SIGKILL; the topic has them under the app `tallystream`.

    The second aggregator ships its sums, too.
    """
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, seed=3)
    fleet.publish(300)
    log, port = tmp_path / "aggregate.log", ("--http-port", "0")
    end = len(read_topic(broker.bootstrap_servers, topics.metrics))
    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path, *port) as process:
        url = base(log)
        wait_all_committed(broker.bootstrap_servers, topics, {0: end})
        assert ask(url + "/healthz") == (200, '{"ok": true, "command": "aggregate", "stage": "running"}\n')
        wait_until(lambda: ask(url + "/readyz")[0] == 200, LIMIT_S, "it is ready")
        wait_until(
            lambda: internal_metrics(url).get("tallystream_table_records_total") == end, LIMIT_S, "all are counted"
        )
        found = internal_metrics(url)
        process.kill()
        process.wait(60)
    dead = len(read_topic(broker.bootstrap_servers, topics.dead))
    assert found["tallystream_table_dead_letters_total"] == dead == len(fleet.journal.malformed)
    assert found["tallystream_input_records_total"] == end
    assert found["tallystream_table_stale_total"] > 0
    sums = latest_sums(broker.bootstrap_servers, topics.agg)
    counter = sums["orders", NAME, "counter", (("part", "0"),)]
    assert found["tallystream_table_instances"] == counter.instances > 10
    assert found["tallystream_table_metrics"] == len([key for key in sums if key[2] != INSTANCES]) == 8
    assert found["tallystream_generation"] == 1
    monkeypatch.delenv("TALLYSTREAM_NO_OWN_METRICS")
    log.rename(tmp_path / "killed.log")  # the JVM of the killed process may still write to it
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}", env={})
    with running_aggregator(broker.bootstrap_servers, topic_prefix, tmp_path, *port, "--store", store.spec) as process:
        url = base(log)
        fleet.publish(100)

        def reported() -> bool:
            return ("tallystream", "tallystream.table.records", "gauge", (("command", "aggregate"),)) in latest_sums(
                broker.bootstrap_servers, topics.agg
            )

        wait_until(reported, LIMIT_S, "its internal metrics are summed")
        found = internal_metrics(url)
        assert found["tallystream_generation"] == 2
        wait_shipped(url, store)
        assert found["tallystream_table_records_total"] >= found["tallystream_input_records_total"] + end
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    records = read_topic(broker.bootstrap_servers, topics.metrics)
    own = [json.loads(one.value or b"") for one in records if (one.key or b"").startswith(b"aggregate@")]
    assert {record["app"] for record in own} == {"tallystream"}
    assert own[-1]["final"]
