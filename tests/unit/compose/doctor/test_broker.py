"""`doctor`: the checks of brokers, topics, lease and permissions, on answers of brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tallystream_aggregator.kafka.lease import GROUP
from tallystream_aggregator.kafka.topics import Topics, policies
from tallystream_cli.doctor import broker, permissions
from tallystream_cli.doctor.cluster import TRANSACTIONS, Cluster, Group, Topic
from tallystream_cli.permissions import commands

NAMES = Topics("p-")
ALL = frozenset({"Read", "Write", "Create", "Delete", "Describe", "DescribeConfigs"})
POLICIES = policies(NAMES)


def topic(name: str, **changes: Any) -> Topic:
    """Return a topic as the aggregator creates it."""
    return replace(Topic((1,), (1,), (1,), ALL, POLICIES[name]), **changes)


def cluster(**changes: Any) -> Cluster:
    """Return a cluster of one broker with all topics and groups, on which everything is allowed."""
    groups = {name: Group(ALL) for name in permissions.group_names(NAMES.prefix)}
    made = Cluster(
        "b:9092", "c", 1, {"Produce": 13}, {name: topic(name) for name in POLICIES}, groups=groups, transactions=""
    )
    return replace(made, **changes)


def with_topic(name: str, **changes: Any) -> Cluster:
    """Return the cluster with one changed topic."""
    return cluster(topics={**cluster().topics, name: topic(name, **changes)})


def finding_of(found: Cluster, name: str) -> Any:
    """Return the finding about one topic."""
    return next(one for one in broker.topics(found, NAMES) if one.check == f"topic {name}")


@pytest.mark.parametrize(
    ("apis", "status", "text"),
    [
        ({"Produce": 13, "Fetch": 18}, "ok", "Kafka 4.1 or newer"),
        ({"Produce": 11, "Fetch": 17}, "ok", "Kafka 3.9 or newer"),
        ({"Produce": 9, "Fetch": 15, "AddPartitionsToTxn": 4}, "ok", "Kafka 3.6 or newer"),
        ({"Produce": 9, "Fetch": 15, "AddPartitionsToTxn": 3}, "failed", "older than Kafka 3.6"),
        ({}, "warning", "of an unknown version"),
    ],
)
def test_the_version_follows_from_the_requests_that_a_broker_knows(
    apis: dict[str, int], status: str, text: str
) -> None:
    """The newest version is named whose requests the broker knows."""
    found = broker.broker(cluster(apis=apis))
    assert (found.status, found.found.rpartition(", ")[2]) == (status, text)


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
    found = finding_of(with_topic(NAMES.metrics, config=POLICIES[NAMES.metrics] | {key: value}), NAMES.metrics)
    assert found.status == status
    assert (f"--add-config {key}=" in found.remedy) is (status != "ok")


def test_an_unreadable_configuration_is_not_checked() -> None:
    """The permission to see it is named."""
    found = finding_of(with_topic(NAMES.agg, config=None), NAMES.agg)
    assert (found.status, found.remedy) == ("not checked", "allow DescribeConfigs on p-metrics-agg")


def test_partitions_and_replicas() -> None:
    """A missing leader and a second partition fail; missing replicas are warnings, a single one on three brokers."""
    assert finding_of(with_topic(NAMES.metrics, leaders=(None,)), NAMES.metrics).status == "failed"
    two = {"replicas": (1, 1), "in_sync": (1, 1), "leaders": (1, 1)}
    assert finding_of(with_topic(NAMES.agg, **two), NAMES.agg).status == "failed"
    assert finding_of(with_topic(NAMES.metrics, **two), NAMES.metrics).status == "ok"
    assert finding_of(with_topic(NAMES.agg, replicas=(3,), in_sync=(2,)), NAMES.agg).status == "warning"
    assert finding_of(cluster(brokers=2), NAMES.agg).status == "ok"
    assert finding_of(cluster(brokers=3), NAMES.agg).status == "warning"


def test_the_lease_tells_whether_an_aggregator_runs() -> None:
    """Its holder is named. Without one, nothing is wrong until an aggregator has run."""
    held = {NAMES.prefix + GROUP: Group(ALL, ("10.0.0.7",), 1)}
    running = broker.lease(cluster(groups=held), NAMES)
    assert (running.status, running.found) == ("ok", "one runs on 10.0.0.7 and has the lease, 1 other waiting")
    assert broker.lease(cluster(), NAMES).status == "ok"
    assert broker.lease(with_topic(NAMES.ledger, records=5), NAMES).status == "warning"
    refused = cluster(groups={}, refused_groups=frozenset([NAMES.prefix + GROUP]))
    assert broker.lease(refused, NAMES).status == "not checked"


def test_a_table_of_one_shard_has_no_topic_for_shards() -> None:
    """It is not missed."""
    rest = {name: found for name, found in cluster().topics.items() if name != NAMES.shards}
    assert {one.status for one in broker.topics(cluster(topics=rest), NAMES)} == {"ok"}
    assert permissions.of_command(cluster(topics=rest), NAMES, "aggregate").found == "complete"


@pytest.mark.parametrize(
    ("opened", "brokers", "state", "status", "text"),
    [
        (None, 3, {}, "not checked", "no program has used"),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", 3, {}, "not checked", "may not use"),
        ("INVALID_TRANSACTION_TIMEOUT", 3, {}, "failed", "transaction.max.timeout.ms of the brokers is not 30000"),
        ("_TIMED_OUT", 3, {}, "failed", "_TIMED_OUT"),
        ("", 3, {"replicas": (3,), "in_sync": (3,), "config": {"min.insync.replicas": "2"}}, "ok", "3 replicas"),
        ("", 3, {"replicas": (3,), "in_sync": (3,), "config": {"min.insync.replicas": "1"}}, "warning", "replicas=1"),
        ("", 3, {"config": {"min.insync.replicas": "2"}}, "warning", "one replica"),
        ("", 1, {"config": {"min.insync.replicas": "1"}}, "ok", "1 replica"),
    ],
)
def test_transactions(opened: str | None, brokers: int, state: dict[str, Any], status: str, text: str) -> None:
    """The timeout must be allowed; with three brokers the state of transactions survives the loss of one."""
    found = replace(topic(NAMES.agg), **state)
    finding = broker.transactions(
        cluster(transactions=opened, brokers=brokers, topics={TRANSACTIONS: found} if state else {})
    )
    assert (finding.status, text in finding.found) == (status, True), finding


def test_the_permission_to_use_the_transactional_ids() -> None:
    """Only opening one tells it."""
    refused = permissions.of_command(cluster(transactions="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"), NAMES, "aggregate")
    assert refused.found == "this user lacks Write/Describe on transactional ID p-tallystream-aggregator-*"
    unknown = permissions.of_command(cluster(transactions=None), NAMES, "aggregate")
    assert (unknown.status, "p-tallystream-aggregator-*" in unknown.found) == ("ok", True)


@pytest.mark.parametrize("command", commands())
def test_a_user_who_may_do_everything_may_run_each_command(command: str) -> None:
    """No permission is missing."""
    assert permissions.of_command(cluster(), NAMES, command).status == "ok"


def test_each_missing_permission_is_named() -> None:
    """The operation and the topic or group are named, with the prefix of the system."""
    found = permissions.of_command(with_topic(NAMES.agg, operations=ALL - {"Write"}), NAMES, "aggregate")
    assert (found.status, found.found) == ("failed", "this user lacks Write on topic p-metrics-agg")
    groups = {**cluster().groups, permissions.EXAMPLE: Group(frozenset())}
    found = permissions.of_command(cluster(groups=groups), NAMES, "lag collect")
    assert found.found == "this user lacks Describe on group *"
    hidden = cluster(refused_groups=frozenset(["p-tallystream-shipper"]))
    assert "Read on group p-tallystream-shipper" in permissions.of_command(hidden, NAMES, "ship").found


def test_the_permission_to_create_an_existing_topic_is_not_needed() -> None:
    """Commands create only missing topics."""
    may_not_create = {name: topic(name, operations=ALL - {"Create"}) for name in POLICIES}
    assert permissions.of_command(cluster(topics=may_not_create), NAMES, "aggregate").status == "ok"


def test_a_user_of_one_command_is_a_warning() -> None:
    """Without named commands, the commands are listed that this user may run, and what the next one lacks."""
    (everything,) = permissions.permissions(cluster(), NAMES, [])
    assert everything.status == "ok"
    reads = {name: topic(name, operations=frozenset({"Read", "Describe"})) for name in POLICIES}
    (some,) = permissions.permissions(cluster(topics=reads), NAMES, [])
    assert some.status == "warning"
    assert "this user may run verify, sums, lag collect, not others" in some.found
    nothing = {name: topic(name, operations=frozenset()) for name in POLICIES}
    (none,) = permissions.permissions(cluster(topics=nothing), NAMES, [])
    assert none.status == "failed"


def test_what_can_not_be_asked_for_is_not_missing() -> None:
    """Before the first start neither topics nor groups can be asked for."""
    empty = cluster(topics={}, groups={}, transactions=None)
    assert permissions.of_command(empty, NAMES, "aggregate").status == "not checked"
    assert permissions.of_all(empty, NAMES).status == "not checked"
