"""`tallystream doctor` on real servers: what it finds, and that it creates nothing."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from support.commands import run
from support.doctor import doctor
from support.stores import content, influx_bucket
from tallystream_cli import influx_tokens
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from pathlib import Path

    from support.stores import Influx
    from tallystream_aggregator.kafka.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def all_topics(admin: AdminClient) -> set[str]:
    """Return every topic of a broker, internal ones included."""
    return set(admin.list_topics(timeout=30).topics)


def test_nothing_is_created(tmp_path: Path) -> None:
    """An empty broker, which creates topics at their first use, has no topic afterwards; no file is created."""
    store, checkpoint = tmp_path / "new" / "store.db", tmp_path / "new" / "checkpoint"
    with KafkaBroker(tmp_path / "broker", properties={"auto.create.topics.enable": "true"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        assert all_topics(admin) == set()
        arguments = ("--bootstrap-servers", broker.bootstrap_servers, "--store", f"local:{store}")
        result = doctor(*arguments, "--checkpoint", str(checkpoint), "--otlp-topic", "otlp", "--command", "aggregate")
        assert all_topics(admin) == set()
    assert not (tmp_path / "new").exists()
    assert result.code == 0, result.failed
    assert result.lines["topics"].status == "warning"
    assert result.lines["permissions of aggregate"].status == "not checked"


def test_a_system_with_its_topics_has_no_failed_check(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path
) -> None:
    """Topics are ok, and none is created."""
    before = all_topics(admin)
    result = doctor("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topics.prefix)
    assert result.code == 0, result.failed
    names = (topics.metrics, topics.agg, topics.table, topics.events, topics.ledger, topics.dead)
    for check in (*(f"topic {name}" for name in names), "broker"):
        assert result.lines[check].status == "ok", (check, result.lines[check])
    assert all_topics(admin) == before
    assert result.lines["store"] == ("not checked", "store", "none is named", "give --store")
    assert result.lines["checkpoint"].status == "not checked"


def test_a_wrong_configuration_is_named_with_the_command_that_corrects_it(
    broker: KafkaBroker, admin: AdminClient, topics: Topics
) -> None:
    """A topic without append times fails, and one with a shorter retention is a warning."""
    wrong = {topics.metrics: ("message.timestamp.type", "CreateTime"), topics.dead: ("retention.ms", "1000")}
    changes = [
        ConfigResource(
            ConfigResource.Type.TOPIC,
            name,
            incremental_configs=[ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)],
        )
        for name, (key, value) in wrong.items()
    ]
    for future in admin.incremental_alter_configs(changes).values():
        future.result(30)
    result = doctor("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topics.prefix)
    assert result.code == 1
    assert set(result.failed) == {f"topic {topics.metrics}"}
    found = result.failed[f"topic {topics.metrics}"]
    assert found.found == "message.timestamp.type is CreateTime, not LogAppendTime"
    assert found.remedy.endswith(f"--entity-name {topics.metrics} --add-config message.timestamp.type=LogAppendTime")
    assert result.lines[f"topic {topics.dead}"].status == "warning"


def test_an_address_without_a_broker_is_one_failed_check() -> None:
    """What needs the broker is not checked; the text has one line for each check, with the remedy."""
    result = doctor("--bootstrap-servers", "127.0.0.1:1")
    assert result.code == 1
    assert set(result.failed) == {"broker"}
    assert {result.lines[check].status for check in ("topics", "transactions")} == {"not checked"}
    text = run("doctor", "--bootstrap-servers", "127.0.0.1:1", timeout=120)
    assert text.returncode == 1
    (line,) = [line for line in text.stdout.splitlines() if line.startswith("failed")]
    assert line.split()[:5] == ["failed", "broker", "--bootstrap-servers:", "127.0.0.1:1", "→"]
    assert line.endswith("start the broker, or correct the address")


def test_a_token_that_may_only_read(influxdb: Influx, tmp_path: Path) -> None:
    """A token with the right to read is enough for the page, and not for the shipper. Nothing is written."""
    with influx_bucket(influxdb, f"doctor {uuid.uuid4().hex}") as store:
        env = {"INFLUXDB_URL": store.where, "INFLUXDB_ORG": store.org, "INFLUXDB_BUCKET": store.bucket}
        assert influx_tokens.main([str(tmp_path)], {**env, "INFLUXDB_TOKEN": store.token}) == 0
        token = (tmp_path / "page" / "token").read_text()
        arguments = ("--bootstrap-servers", "127.0.0.1:1", "--store", store.spec)
        page = doctor(*arguments, "--command", "page", env={**env, "INFLUXDB_TOKEN": token})
        assert page.lines["store"].status == "ok"

        ship = doctor(*arguments, "--command", "ship", env={**env, "INFLUXDB_TOKEN": token})
        assert ship.lines["store"][::2] == ("failed", "the token may not write the bucket")
        wrong = doctor(*arguments, env={**env, "INFLUXDB_TOKEN": "wr0ng-token"})
        assert wrong.lines["store"].status == "failed"
        assert "wr0ng" not in str(wrong)
        writer = doctor(*arguments, env={**env, "INFLUXDB_TOKEN": store.token})
        assert writer.lines["store"].status == "ok"
        assert content(store, "tallystream", ["count"]) == {}
