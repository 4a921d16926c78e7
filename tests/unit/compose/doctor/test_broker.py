"""`doctor`: the checks of brokers, topics, lease and permissions, on answers of brokers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tallystream_aggregator.kafka.lease import GROUP
from tallystream_aggregator.kafka.topics import Topics, policies
from tallystream_cli.doctor import broker, permissions
from tallystream_cli.doctor.broker import Brokers
from tallystream_cli.permissions import PERMISSIONS

NAMES = Topics("p-")
ALL = {"READ", "WRITE", "CREATE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS"}
POLICIES = policies(NAMES)


def topic(partitions: int = 1, *, operations: set[str] = ALL, leader: int = 1) -> Any:
    """Return the description of a topic."""
    numbered = [SimpleNamespace(id=number, leader=SimpleNamespace(id=leader)) for number in range(partitions)]
    return SimpleNamespace(partitions=numbered, authorized_operations=[SimpleNamespace(name=one) for one in operations])


def group(*members: tuple[str, list[int]], operations: set[str] = ALL) -> Any:
    """Return the description of a group; members are hosts and partitions."""
    found = [
        SimpleNamespace(host=f"/{host}", assignment=SimpleNamespace(topic_partitions=assigned))
        for host, assigned in members
    ]
    return SimpleNamespace(members=found, authorized_operations=[SimpleNamespace(name=one) for one in operations])


def cluster(**changes: Any) -> Brokers:
    """Return brokers with all topics and groups, as the aggregator creates them, on which everything is allowed."""
    groups = {name: group() for name in permissions.group_names(NAMES.prefix)}
    made = Brokers("b:9092", 1, {name: topic() for name in POLICIES}, POLICIES, groups)
    return replace(made, **changes)


def with_topic(name: str, changed: Any) -> Brokers:
    """Return the brokers with one changed topic."""
    return cluster(topics={**cluster().topics, name: changed})


def finding_of(found: Brokers, name: str) -> Any:
    """Return the finding about one topic."""
    return next(one for one in broker.topics(found, NAMES) if one.check == f"topic {name}")


def test_topics_as_the_aggregator_creates_them_are_ok() -> None:
    """One line for each topic."""
    findings = list(broker.topics(cluster(), NAMES))
    assert [(one.status, one.check) for one in findings] == [("ok", f"topic {name}") for name in POLICIES]


def test_missing_topics_are_a_warning_before_the_first_start_only() -> None:
    """Without any topic nothing has run yet; a single missing one is an error."""
    (none,) = broker.topics(cluster(topics={}), NAMES)
    assert none.status == "warning"
    rest = {name: found for name, found in cluster().topics.items() if name != NAMES.ledger}
    assert finding_of(cluster(topics=rest), NAMES.ledger).status == "failed"
    assert finding_of(cluster(topics=rest, refused=frozenset([NAMES.ledger])), NAMES.ledger).status == "not checked"


@pytest.mark.parametrize(
    ("key", "value", "status"),
    [
        ("cleanup.policy", "compact", "failed"),
        ("message.timestamp.type", "CreateTime", "failed"),
        ("retention.ms", "1000", "warning"),
        ("retention.ms", "604800001", "ok"),
        ("retention.ms", "-1", "ok"),
    ],
)
def test_a_configuration_is_compared_with_the_policy(key: str, value: str, status: str) -> None:
    """A wrong word fails, a lower number is a warning, and a higher one is the operator's choice."""
    found = finding_of(
        cluster(configs=POLICIES | {NAMES.metrics: POLICIES[NAMES.metrics] | {key: value}}), NAMES.metrics
    )
    assert found.status == status
    assert (f"--add-config {key}=" in found.remedy) is (status != "ok")


def test_an_unreadable_configuration_is_not_checked() -> None:
    """The permission to see it is named."""
    found = finding_of(cluster(configs={}), NAMES.agg)
    assert (found.status, found.remedy) == ("not checked", "allow DescribeConfigs on p-metrics-agg")


def test_partitions() -> None:
    """A missing leader fails, and so does a second partition of a topic that must have one."""
    assert finding_of(with_topic(NAMES.metrics, topic(leader=-1)), NAMES.metrics).status == "failed"
    assert finding_of(with_topic(NAMES.agg, topic(2)), NAMES.agg).status == "failed"
    assert finding_of(with_topic(NAMES.metrics, topic(2)), NAMES.metrics).status == "ok"


def test_the_lease_tells_whether_an_aggregator_runs() -> None:
    """Its holder is named. Without one, nothing is summed."""
    held = {NAMES.prefix + GROUP: group(("10.0.0.7", [0]), ("10.0.0.8", []))}
    running = broker.lease(cluster(groups=held), NAMES)
    assert (running.status, running.found) == ("ok", "one runs on 10.0.0.7 and has the lease, 1 other waiting")
    assert broker.lease(cluster(), NAMES).status == "warning"
    refused = cluster(groups={}, refused=frozenset([NAMES.prefix + GROUP]))
    assert broker.lease(refused, NAMES).status == "not checked"


def test_a_table_of_one_shard_has_no_topic_for_shards() -> None:
    """It is not missed."""
    rest = {name: found for name, found in cluster().topics.items() if name != NAMES.shards}
    assert {one.status for one in broker.topics(cluster(topics=rest), NAMES)} == {"ok"}
    assert permissions.of_command(cluster(topics=rest), NAMES, "aggregate").found == "complete"


@pytest.mark.parametrize(
    ("opened", "status", "text"),
    [
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "not checked", "may not use"),
        ("INVALID_TRANSACTION_TIMEOUT", "failed", "transaction.max.timeout.ms of the brokers is not 30000"),
        ("_TIMED_OUT", "failed", "_TIMED_OUT"),
        ("", "ok", "they can be begun"),
    ],
)
def test_transactions(opened: str, status: str, text: str) -> None:
    """The brokers must allow the timeout of our transactions."""
    finding = broker.transactions(cluster(transactions=opened))
    assert (finding.status, text in finding.found) == (status, True), finding


def test_the_permission_to_use_the_transactional_ids() -> None:
    """Only opening one tells it."""
    refused = permissions.of_command(cluster(transactions="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"), NAMES, "aggregate")
    assert refused.found == "this user lacks Write/Describe on transactional ID p-tallystream-aggregator-*"


@pytest.mark.parametrize("command", dict.fromkeys(one.command for one in PERMISSIONS))
def test_a_user_who_may_do_everything_may_run_each_command(command: str) -> None:
    """No permission is missing."""
    assert permissions.of_command(cluster(), NAMES, command).status == "ok"


def test_each_missing_permission_is_named() -> None:
    """The operation and the topic or group are named, with the prefix of the system."""
    found = permissions.of_command(with_topic(NAMES.agg, topic(operations=ALL - {"WRITE"})), NAMES, "aggregate")
    assert (found.status, found.found) == ("failed", "this user lacks Write on topic p-metrics-agg")
    groups = {**cluster().groups, permissions.EXAMPLE: group(operations=set())}
    found = permissions.of_command(cluster(groups=groups), NAMES, "lag collect")
    assert found.found == "this user lacks Describe on group *"
    hidden = cluster(refused=frozenset(["p-tallystream-shipper"]))
    assert "Read on group p-tallystream-shipper" in permissions.of_command(hidden, NAMES, "ship").found


def test_the_permission_to_create_an_existing_topic_is_not_needed() -> None:
    """Commands create only missing topics."""
    may_not_create = {name: topic(operations=ALL - {"CREATE"}) for name in POLICIES}
    assert permissions.of_command(cluster(topics=may_not_create), NAMES, "aggregate").status == "ok"


def test_what_can_not_be_asked_for_is_not_missing() -> None:
    """Before the first start topics can't be asked for."""
    found = permissions.of_command(cluster(topics={}), NAMES, "aggregate")
    assert (found.status, "topic p-metrics-agg" in found.found) == ("ok", True)
    assert permissions.of_command(cluster(topics={}), NAMES, "reporter").status == "not checked"
