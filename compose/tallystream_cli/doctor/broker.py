"""Checks of the brokers, the topics and the lease, from what the brokers answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.kafka.lease import GROUP
from tallystream_aggregator.kafka.topics import policies
from tallystream_cli.doctor.cluster import TRANSACTION_TIMEOUT_MS, TRANSACTIONS
from tallystream_cli.doctor.findings import failed, not_checked, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.doctor.cluster import Cluster, Topic
    from tallystream_cli.doctor.findings import Finding

VERSIONS = (
    ("4.1", "Produce", 13),
    ("4.0", "Produce", 12),
    ("3.9", "Fetch", 17),
    ("3.7", "Fetch", 16),
    ("3.6", "AddPartitionsToTxn", 4),
)
"""Kafka's versions, newest first, by a request that became known with them. A broker does not state its version."""

OLDEST = VERSIONS[-1][0]

REPLICAS = 3
"""The number of brokers from which topics can have more replicas than one."""

MIN_IN_SYNC = 2
"""So many replicas should have each record of a transaction's state, if there are that many brokers."""


def broker(cluster: Cluster) -> Finding:
    """Check the version of the brokers: older ones can leave the transaction of a lost producer open for ever."""
    where, remedy = (
        f"{cluster.servers}: cluster {cluster.id}, {_count(cluster.brokers, 'broker')}",
        f"use {OLDEST} or newer",
    )
    if not cluster.apis:
        return warning("broker", f"{where}, of an unknown version", remedy)
    for version, request, number in VERSIONS:
        if cluster.apis.get(request, 0) >= number:
            return ok("broker", f"{where}, Kafka {version} or newer")
    return failed("broker", f"{where}, older than Kafka {OLDEST}", remedy)


def transactions(cluster: Cluster) -> Finding:
    """Check that a transaction can have our timeout, and that the loss of a broker does not stop transactions."""
    check, opened = "transactions", cluster.transactions
    if opened is None:
        return not_checked(check, "no program has used transactions on this cluster yet")
    if opened.endswith("AUTHORIZATION_FAILED"):
        return not_checked(check, "this user may not use the aggregator's transactional IDs")
    if opened == "INVALID_TRANSACTION_TIMEOUT":
        limit = f"{TRANSACTION_TIMEOUT_MS} or more"
        return failed(check, f"transaction.max.timeout.ms of the brokers is not {limit}", f"set it to {limit}")
    if opened:
        return failed(check, f"no transactional ID can be opened: {opened}", f"check the replicas of {TRANSACTIONS}")
    return _transaction_state(check, cluster, cluster.topics.get(TRANSACTIONS))


def _transaction_state(check: str, cluster: Cluster, found: Topic | None) -> Finding:
    if found is None:
        return ok(check, f"they can be begun; this user may not describe {TRANSACTIONS}")
    in_sync = (found.config or {}).get("min.insync.replicas", "")
    if cluster.brokers >= REPLICAS and in_sync.isdigit() and int(in_sync) < MIN_IN_SYNC:
        remedy = f"set min.insync.replicas={MIN_IN_SYNC} on it"
        return warning(check, f"{TRANSACTIONS} has min.insync.replicas={in_sync}", remedy)
    copies = _copies(check, cluster, found)
    return copies if copies.remedy else ok(check, f"they can be begun; {_count(min(found.replicas), 'replica')}")


def topics(cluster: Cluster, names: Topics) -> Iterator[Finding]:
    """Check each topic: whether it exists, its partitions, its replicas and its configuration."""
    expected = policies(names)
    if names.shards not in cluster.topics:  # a table of one shard does not have it
        del expected[names.shards]
    if not cluster.refused - {TRANSACTIONS} and not any(name in cluster.topics for name in expected):
        remedy = "start tallystream aggregate, which creates them, or correct --topic-prefix"
        yield warning("topics", f"{', '.join(expected)} do not exist yet", remedy)
        return
    for name, policy in expected.items():
        check = f"topic {name}"
        if name in cluster.refused:
            yield not_checked(check, "this user may not describe it, or it does not exist", f"allow Describe on {name}")
        elif name not in cluster.topics:
            yield failed(check, "it does not exist", "start tallystream aggregate, which creates it")
        else:
            single = name not in (names.metrics, names.table, names.shards, *names.otlp)
            yield topic(check, cluster, cluster.topics[name], policy, single=single)


def topic(check: str, cluster: Cluster, found: Topic, policy: Mapping[str, str], *, single: bool) -> Finding:
    """Check one topic. `single` tells whether it must have one partition."""
    name = check.removeprefix("topic ")
    return (
        _partitions(check, found, single=single)
        or _configuration(check, name, found, policy)
        or _copies(check, cluster, found)
    )


def _partitions(check: str, found: Topic, *, single: bool) -> Finding | None:
    if leaderless := [str(number) for number, leader in enumerate(found.leaders) if leader is None]:
        return failed(check, f"no leader of partition {', '.join(leaderless)}", "start the broker that has it")
    if single and len(found.replicas) > 1:
        remedy = "stop all commands, delete the topic, and start the aggregator, which creates it"
        return failed(check, f"{len(found.replicas)} partitions, but it must have one", remedy)
    return None


def _configuration(check: str, name: str, found: Topic, policy: Mapping[str, str]) -> Finding | None:
    if found.config is None:
        return not_checked(check, "this user may not see its configuration", f"allow DescribeConfigs on {name}")
    wrong, lower = differences(policy, found.config)
    if not wrong and not lower:
        return None
    text = "; ".join(f"{key} is {found.config.get(key)}, not {policy[key]}" for key in wrong + lower)
    entries = ",".join(f"{key}={policy[key]}" for key in wrong + lower)
    remedy = f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config {entries}"
    return (failed if wrong else warning)(check, text, remedy)


def _copies(check: str, cluster: Cluster, found: Topic) -> Finding:
    if behind := [str(number) for number, copies in enumerate(found.replicas) if found.in_sync[number] < copies]:
        return warning(check, f"replicas of partition {', '.join(behind)} are not in sync", "start all brokers")
    replicas = min(found.replicas, default=0)
    if cluster.brokers >= REPLICAS and replicas == 1:
        remedy = "add replicas with kafka-reassign-partitions.sh, and set default.replication.factor of the brokers"
        return warning(check, f"one replica, so the loss of one of {cluster.brokers} brokers loses records", remedy)
    summary = f"{_count(len(found.replicas), 'partition')}, {_count(replicas, 'replica')}"
    return ok(check, f"{summary}, configured as in docs/record.md")


def differences(policy: Mapping[str, str], config: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the entries that break the system, and the numbers that are below those of the policy.

    A longer time or a larger size is an operator's choice. -1 is unlimited.
    """
    wrong, lower = [], []
    for key, value in policy.items():
        found = config.get(key, "")
        if not value.isdigit():
            wrong += [key] if found != value else []
        elif found != "-1" and (not found.isdigit() or int(found) < int(value)):
            lower.append(key)
    return wrong, lower


def lease(cluster: Cluster, names: Topics) -> Finding:
    """Check whether an aggregator runs: whether one has the lease."""
    check, group = "aggregator", names.prefix + GROUP
    ledger = cluster.topics.get(names.ledger)
    if group in cluster.refused_groups:
        return not_checked(
            check, f"this user may not describe the group {group}", f"allow Describe on the group {group}"
        )
    found = cluster.groups.get(group)
    if found is not None and found.active:
        standby = f", {_count(found.waiting, 'other')} waiting" if found.waiting else ""
        return ok(check, f"one runs on {', '.join(found.active)} and has the lease{standby}")
    if ledger is not None and ledger.records:
        return warning(check, "none runs, so nothing is summed", "start tallystream aggregate")
    return ok(check, "none has run yet")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
