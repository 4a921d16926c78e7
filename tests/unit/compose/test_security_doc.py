"""docs/security.md: the table of ACLs has every topic and every command that needs one."""

from __future__ import annotations

import re
from pathlib import Path

from confluent_kafka.admin import AclOperation

from support import reference
from tallystream_aggregator.kafka.topics import Topics, policies
from tallystream_cli import permissions
from tallystream_cli.influx_tokens import PERMISSIONS

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
NO_KAFKA = {
    "page",
    "top",
    "instances",
    "compare",
    "lag show",
    "dashboards generate",
    "dashboards push",
    "status",
    "down",
    "alert",
}
OWN_BROKER = {"up", "demo"}


def test_the_table_is_that_of_the_code() -> None:
    """The page has the permissions that `tallystream doctor` checks."""
    text = PAGE.read_text(encoding="utf-8")
    assert reference.update_acls(text) == text, reference.REMEDY


def test_every_topic_is_written_and_read() -> None:
    """For each topic there are ACLs to write, read and create it; the table names no other topic."""
    topics = [acl for acl in permissions.PERMISSIONS if acl.resource == "topic"]
    assert {acl.name for acl in topics} - {"*"} == set(policies(Topics()))
    for name in policies(Topics()):
        given = {operation for acl in topics if acl.name == name for operation in acl.operations}
        assert {"Read", "Write", "Create"} <= given, name


def test_every_command_that_uses_kafka_has_permissions() -> None:
    """A command is in the table, does not use Kafka, or starts its own broker."""
    commands = set(reference.commands()) - {reference.GENERAL}
    assert {acl.command for acl in permissions.PERMISSIONS} == {"reporter", *(commands - NO_KAFKA - OWN_BROKER)}
    for name in commands:
        uses_kafka = any("--bootstrap-servers" in one.opts for one in reference.commands()[name].params)
        assert uses_kafka is (name not in NO_KAFKA | OWN_BROKER), name


def test_only_the_aggregator_may_write_its_topics() -> None:
    """Only `aggregate` and `rebuild` write sums, rows, events and the ledger."""
    for acl in permissions.PERMISSIONS:
        if acl.resource == "topic" and "Write" in acl.operations:
            assert acl.command in ("aggregate", "rebuild") or acl.name in ("metrics", "metrics-dead"), acl


def test_every_operation_exists() -> None:
    """Each operation in the table is one of Kafka's."""
    known = {one.name.replace("_", "") for one in AclOperation}
    assert {word.upper() for acl in permissions.PERMISSIONS for word in acl.operations} <= known


def test_the_page_agrees_with_the_tokens_of_compose() -> None:
    """The table of InfluxDB's permissions has what the service `influxdb-tokens` grants."""
    text = PAGE.read_text(encoding="utf-8").partition("## InfluxDB")[2]
    names = {
        "shipper": "`ship`",
        "lag": "`lag collect`",
        "page": "`page`, `top`, `sums`, `instances`, `compare`, `lag show`",
        "grafana": "Grafana's data source",
    }
    for service, actions in PERMISSIONS.items():
        (cell,) = re.findall(rf"^\| {re.escape(names[service])} \| (.+) \|$", text, re.MULTILINE)
        assert {action for action in ("read", "write") if re.search(rf"\b{action}\b", cell)} == set(actions)
