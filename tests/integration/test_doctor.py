"""`tallystream doctor` on real servers: what it finds, and that it creates nothing."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from support.doctor import doctor
from support.stores import Influx, content, influx_bucket
from tallystream_aggregator.kafka.topics import Topics
from tallystream_cli import influx_tokens
from tallystream_cli.doctor.broker import fetch
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def all_topics(admin: AdminClient) -> set[str]:
    """Return every topic of a broker, internal ones included."""
    return set(admin.list_topics(timeout=30).topics)


OWN = {"__consumer_offsets", "__transaction_state"}
"""Kafka's own topics, which a broker makes when it is asked for a group or a transactional ID."""


def test_nothing_is_created(tmp_path: Path) -> None:
    """An empty broker, which creates topics at their first use, has none but its own afterwards; no file is created."""
    store, checkpoint = tmp_path / "new" / "store.db", tmp_path / "new" / "checkpoint"
    folder = tmp_path / "jörg, b"  # a broker's folder may have any name
    with KafkaBroker(folder, properties={"auto.create.topics.enable": "true"}) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
        assert all_topics(admin) == set()
        # A broker makes its own topic for the first request about a group, which may take a busy one a minute.
        admin.describe_consumer_groups(["nobody"], request_timeout=300)["nobody"].exception()
        arguments = ("--bootstrap-servers", server.bootstrap_servers, "--store", f"local:{store}")
        result = doctor(*arguments, "--checkpoint", str(checkpoint), "--otlp-topic", "otlp")
        assert all_topics(admin) <= OWN
    assert list(tmp_path.iterdir()) == [folder]
    assert (folder / "data" / "meta.properties").exists()
    assert result.code == 0, result.failed
    assert result.lines["topics"].status == "warning"
    assert result.lines["transactions"].status == "ok"


def test_a_slow_broker_is_waited_for(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that takes seven seconds for an answer, as a busy one does for its first group, is no failure."""
    process = psutil.Process(broker.pid)
    monkeypatch.setattr("tallystream_cli.doctor.broker.check_login", lambda *_, **__: process.suspend())
    timer = threading.Timer(7, process.resume)
    timer.start()
    found = fetch({"bootstrap.servers": broker.bootstrap_servers}, Topics(), "doctor")
    timer.join()
    assert (found.number, found.transactions) == (1, "")


def test_a_token_that_may_only_read(influxdb: Influx, tmp_path: Path) -> None:
    """The finding names what a token may do. Nothing is written."""
    with influx_bucket(influxdb, f"doctor {uuid.uuid4().hex}") as store:
        env = {"INFLUXDB_URL": store.where, "INFLUXDB_ORG": store.org, "INFLUXDB_BUCKET": store.bucket}
        assert influx_tokens.main([str(tmp_path)], {**env, "INFLUXDB_TOKEN": store.token}) == 0
        token = (tmp_path / "page" / "token").read_text()
        arguments = ("--bootstrap-servers", "127.0.0.1:1", "--store", store.spec)
        page = doctor(*arguments, env={**env, "INFLUXDB_TOKEN": token})
        assert page.lines["store"][::2] == ("ok", f"{store.spec}: the token may read the bucket")
        wrong = doctor(*arguments, env={**env, "INFLUXDB_TOKEN": "wr0ng-token"})
        assert wrong.lines["store"].status == "failed"
        assert "wr0ng" not in str(wrong)
        writer = doctor(*arguments, env={**env, "INFLUXDB_TOKEN": store.token})
        assert writer.lines["store"].status == "ok"
        assert content(store, "tallystream", ["count"]) == {}
