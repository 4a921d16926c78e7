"""docs/security.md against the code: every topic and every command is in the table of ACLs, or needs none."""

from __future__ import annotations

import re

from confluent_kafka.admin import AclOperation

from support.acls import PAGE, acls
from tallystream_aggregator.kafka.topics import Topics, policies
from tallystream_cli import reference
from tallystream_cli.influx_tokens import PERMISSIONS

NO_KAFKA = {"page", "lag show", "dashboards generate", "dashboards push", "status", "down"}
OWN_BROKER = {"up", "demo"}


def test_every_topic_is_written_and_read_by_somebody() -> None:
    """And the table names no other topic."""
    topics = [acl for acl in acls() if acl.resource == "topic"]
    assert {acl.name for acl in topics} - {"*"} == set(policies(Topics()))
    for name in policies(Topics()):
        given = {operation for acl in topics if acl.name == name for operation in acl.operations}
        assert {"READ", "WRITE", "CREATE"} <= given, name


def test_every_command_that_uses_kafka_has_permissions() -> None:
    """A command is in the table, or is one without Kafka, or brings its own broker."""
    commands = set(reference.commands()) - {reference.GENERAL}
    assert {acl.command for acl in acls()} == {"reporter", *(commands - NO_KAFKA - OWN_BROKER)}
    for name in commands:
        uses_kafka = any("--bootstrap-servers" in one.opts for one in reference.commands()[name].params)
        assert uses_kafka is (name not in NO_KAFKA | OWN_BROKER), name


def test_only_the_aggregator_writes_what_only_it_may_write() -> None:
    """Sums, rows, events and the ledger have one writer."""
    for acl in acls():
        if acl.resource == "topic" and "WRITE" in acl.operations:
            assert acl.command == "aggregate" or acl.name in ("metrics", "metrics-dead"), acl


def test_the_operations_are_kafkas() -> None:
    """Each is one that a broker knows."""
    for acl in acls():
        assert acl.operations
        assert set(acl.operations) <= set(AclOperation.__members__), acl


def test_the_page_agrees_with_the_tokens_of_compose() -> None:
    """The table of InfluxDB's permissions says what the step `influxdb-tokens` gives."""
    text = PAGE.read_text(encoding="utf-8").partition("## InfluxDB")[2]
    names = {
        "shipper": "`ship`",
        "lag": "`lag collect`",
        "page": "`page`, `lag show`",
        "grafana": "Grafana's data source",
    }
    for part, actions in PERMISSIONS.items():
        (said,) = re.findall(rf"^\| {re.escape(names[part])} \| (.+) \|$", text, re.MULTILINE)
        assert {action for action in ("read", "write") if re.search(rf"\b{action}\b", said)} == set(actions)
