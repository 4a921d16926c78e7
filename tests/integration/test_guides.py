"""The commands and programs of guides in docs/guides, as they are printed, on real servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.aggregator import running_aggregator
from support.commands import run
from support.examples import topic_sums
from support.guides import ROOT, blocks, commands
from support.kafka import latest_sums
from support.otlp_applications import find_javac
from support.processes import end
from support.wait import wait_until
from tallystream_aggregator import java
from tallystream_aggregator.kafka.topics import Topics, policies
from tallystream_cli.servers import jars
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.process import free_port, spawn

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def execute(words: list[str], folder: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in a folder."""
    return subprocess.run(
        words, cwd=folder, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_programs_as_coming_from_dropwizard(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """The printed metrics and reporters: the sums and the last reports have their values."""
    env = {"TALLYSTREAM_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "TALLYSTREAM_TOPIC_PREFIX": topics.prefix}
    done = execute([sys.executable, "-c", "\n".join(blocks("dropwizard", "python"))], tmp_path, env)
    assert done.returncode == 0, done.stderr
    assert "orders.open updown value=1" in done.stdout
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    gauges = {metric["name"]: metric["value"] for metric in last["metrics"] if metric["type"] == "gauge"}
    assert gauges["orders.per.request"] == gauges["queue.length"] == 2
    found = topic_sums(broker.bootstrap_servers, topics.metrics)
    rows = {name: row for name, rows in found.items() for row in rows if row.app == "shop"}
    assert rows["orders.placed"].count == 2
    assert rows["requests"].count == 1
    assert (rows["order.size"].count, rows["order.size"].sum) == (2, 42)
    assert rows["order.handling"].count == 1


def test_a_java_service(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path, collector_binary: Path
) -> None:
    """The printed program, run twice through the printed Collector, is summed over both runs.

    The aggregator has the topic of the printed `up`, which test_up.py starts.
    """
    if find_javac() is None:
        pytest.skip("there is no javac: install a JDK, for example the package openjdk-17-jdk-headless")
    (*_, option, topic), collect, service, show = commands("java-service")
    address, store = f"127.0.0.1:{free_port()}", ("--store", f"local:{tmp_path / 'store.db'}")
    env = {
        "TALLYSTREAM_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "OTLP_ADDRESS": address,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{address}",
        "CLASSPATH": ":".join(map(str, jars.fetch("opentelemetry"))),
    }
    given = {"otelcol": str(collector_binary), "java": java.launcher()}
    collect, service = (
        [str(ROOT / word) if word.startswith("docs/") else given.get(word, word) for word in words]
        for words in (collect, service)
    )
    wanted = {"de": 1500, "fr": 500}

    def placed() -> dict[str, int | None]:
        rows = latest_sums(broker.bootstrap_servers, topics.agg).values()
        return {row.tags["country"]: row.count for row in rows if row.name == "orders.placed"}

    log = tmp_path / "otelcol.log"
    admin.create_topics([NewTopic(topic, 1, 1, config=dict(policies(topics)[topics.metrics]))])[topic].result(30)
    with running_aggregator(broker.bootstrap_servers, topics.prefix, tmp_path, option, topic, *store):
        process = spawn(collect, log, env)
        try:
            wait_until(lambda: "Everything is ready" in log.read_text(), 60, "the Collector runs")
            for _ in range(2):
                done = execute(service, tmp_path, env)
                assert done.returncode == 0, done.stderr
            # A Collector that ends may lose what is in its queue.
            wait_until(lambda: placed() == wanted, 120, "both runs are summed")
        finally:
            end(process, log, 60)
        wait_until(lambda: is_shown([*show, *store]), 60, "the sums are in the store", poll=0.5)


def is_shown(show: list[str]) -> bool:
    """Return whether the printed command shows the sums of both runs."""
    lines = [line.split() for line in run(*show[1:]).stdout.splitlines()]
    counted = {tuple(words[2:5]) for words in lines if words[:2] == ["shop", "orders.placed"]}
    parts = {("country=de", "counter", "1,500"), ("country=fr", "counter", "500")}
    return counted == {("total", "of", "2"), *parts}
