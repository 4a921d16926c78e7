"""Checks of the brokers: what they know of topics and groups, and what this user may do. Asking creates nothing.

A request about a group makes a broker create the topic of its groups' offsets, and a transactional ID, which can be
asked for only by opening it, that of the transactions. So they are asked for only once an aggregator has run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.lease import GROUP
from tallystream_aggregator.kafka.topics import policies
from tallystream_aggregator.stream.kafka.calls import Timeouts
from tallystream_cli.doctor.findings import failed, not_checked, ok, warning

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.doctor.findings import Finding

TIMEOUT_S = 5.0
"""The time for one request to the brokers."""

TRANSACTION_TIMEOUT_MS = int(1000 * Timeouts().transaction_s)
_NO_GROUP = {
    KafkaError.GROUP_ID_NOT_FOUND,
    KafkaError.NOT_COORDINATOR,  # this and the next two: the coordinator is being elected
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_REFUSED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}

Operations = frozenset[str]
"""The operations that this user may perform, in Kafka's words: Read, DescribeConfigs."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `leaderless` are partitions without a leader. `config` is None if this user may not see it."""

    partitions: int
    operations: Operations | None
    config: Mapping[str, str] | None = None
    leaderless: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group: the hosts of the members with partitions, and the number of other members."""

    operations: Operations | None
    active: tuple[str, ...] = ()
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers. Topics and groups in `refused` may exist: this user may not describe them.

    `transactions` is "" if a transactional ID could be opened, or else the name of Kafka's error; None: none was tried.
    """

    servers: str
    brokers: int
    topics: Mapping[str, Topic] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    transactions: str | None = None


def fetch(kafka: Mapping[str, str], topics: Topics, groups: Iterable[str], transactional_id: str) -> Cluster:
    """Return what the brokers know of the topics and some groups. `kafka` are librdkafka's options.

    Once an aggregator has run, `transactional_id` is opened, which nobody uses; no transaction is begun.

    Raises:
        ConfigError: no broker answers, or librdkafka rejects an option.
        LoginError: the broker rejected the user or the certificate.
        KafkaException: a broker did not answer in time.
    """
    check_login(kafka, max_wait_s=TIMEOUT_S)
    admin = clients.admin(kafka)
    options = {"include_authorized_operations": True, "request_timeout": TIMEOUT_S}
    described, refused = _split(
        admin.describe_topics(TopicCollection(sorted(policies(topics))), **options),
        missing={KafkaError.UNKNOWN_TOPIC_OR_PART},
    )
    configs = _configs(admin, described)
    found: dict[str, Any] = {}
    has_run = topics.ledger in described and _end(admin, topics.ledger) > 0
    if has_run:
        found, hidden = _split(admin.describe_consumer_groups(sorted(groups), **options), missing=_NO_GROUP)
        refused |= hidden
    return Cluster(
        servers=kafka["bootstrap.servers"],
        brokers=len(admin.describe_cluster(request_timeout=TIMEOUT_S).result().nodes),
        topics={name: _topic(one, configs.get(name)) for name, one in described.items()},
        groups={name: _group(one) for name, one in found.items()},
        refused=refused,
        transactions=_open(kafka, transactional_id) if has_run else None,
    )


def _split(answers: Mapping[str, Any], *, missing: Collection[int]) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the answers by name, and the names that this user may not describe. Those that do not exist are left out.

    Raises:
        KafkaException: a broker did not answer in time.
    """
    found, refused = {}, set()
    for name, future in answers.items():
        try:
            found[name] = future.result()
        except KafkaException as error:
            if error.args[0].code() in _REFUSED:
                refused.add(name)
            elif error.args[0].code() not in missing:
                raise
    return found, frozenset(refused)


def _configs(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    answers = admin.describe_configs(resources, request_timeout=TIMEOUT_S) if resources else {}
    found, _ = _split({one.name: future for one, future in answers.items()}, missing={KafkaError.UNKNOWN_TOPIC_OR_PART})
    return {name: {key: str(entry.value) for key, entry in config.items()} for name, config in found.items()}


def _end(admin: AdminClient, topic: str) -> int:
    place = TopicPartition(topic, 0)
    answers = admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=TIMEOUT_S)  # type: ignore[no-untyped-call]
    return int(answers[place].result().offset)


def _topic(found: Any, config: Mapping[str, str] | None) -> Topic:
    leaderless = tuple(one.id for one in found.partitions if one.leader is None or one.leader.id < 0)
    return Topic(len(found.partitions), _operations(found.authorized_operations), config, leaderless)


def _group(found: Any) -> Group:
    holders = tuple(one.host.lstrip("/") for one in found.members if one.assignment.topic_partitions)
    return Group(_operations(found.authorized_operations), holders, len(found.members) - len(holders))


def _operations(found: Iterable[Any] | None) -> Operations | None:
    """Return Kafka's words, such as DescribeConfigs, None if the broker does not tell."""
    if found is None:
        return None
    return frozenset("".join(word.capitalize() for word in one.name.split("_")) for one in found)


def _open(kafka: Mapping[str, str], transactional_id: str) -> str:
    options = {**kafka, "transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    try:
        clients.producer(options).init_transactions(TIMEOUT_S)
    except KafkaException as error:
        return str(error.args[0].name())
    return ""


def findings(cluster: Cluster, names: Topics) -> Iterator[Finding]:
    """Check the brokers, their transactions, each topic, and whether an aggregator runs."""
    yield ok("broker", f"{cluster.servers}: {_count(cluster.brokers, 'broker')}")
    yield transactions(cluster)
    yield from topics(cluster, names)
    yield lease(cluster, names)


def transactions(cluster: Cluster) -> Finding:
    """Check that a transaction can have our timeout."""
    check, opened = "transactions", cluster.transactions
    if opened is None:
        return not_checked(check, "no aggregator has run yet")
    if opened.endswith("AUTHORIZATION_FAILED"):
        return not_checked(check, "this user may not use the aggregator's transactional IDs")
    if opened == "INVALID_TRANSACTION_TIMEOUT":
        limit = f"{TRANSACTION_TIMEOUT_MS} or more"
        return failed(check, f"transaction.max.timeout.ms of the brokers is not {limit}", f"set it to {limit}")
    if opened:
        return failed(
            check, f"no transactional ID can be opened: {opened}", "check the replicas of __transaction_state"
        )
    return ok(check, "they can be begun")


def topics(cluster: Cluster, names: Topics) -> Iterator[Finding]:
    """Check each topic: whether it exists, its partitions and its configuration."""
    expected = policies(names)
    if names.shards not in cluster.topics:  # a table of one shard does not have it
        del expected[names.shards]
    if not cluster.refused and not any(name in cluster.topics for name in expected):
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
            several = name in (names.metrics, names.table, names.shards, *names.otlp)
            yield _topic_finding(check, name, cluster.topics[name], policy, several=several)


def _topic_finding(check: str, name: str, found: Topic, policy: Mapping[str, str], *, several: bool) -> Finding:
    if found.leaderless:
        numbers = ", ".join(map(str, found.leaderless))
        return failed(check, f"no leader of partition {numbers}", "start the broker that has it")
    if not several and found.partitions > 1:
        remedy = "stop all commands, delete the topic, and start the aggregator, which creates it"
        return failed(check, f"{found.partitions} partitions, but it must have one", remedy)
    if found.config is None:
        return not_checked(check, "this user may not see its configuration", f"allow DescribeConfigs on {name}")
    wrong, lower = differences(policy, found.config)
    if not wrong and not lower:
        return ok(check, f"{_count(found.partitions, 'partition')}, configured as in docs/record.md")
    text = "; ".join(f"{key} is {found.config.get(key)}, not {policy[key]}" for key in wrong + lower)
    entries = ",".join(f"{key}={policy[key]}" for key in wrong + lower)
    remedy = f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config {entries}"
    return (failed if wrong else warning)(check, text, remedy)


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
    if group in cluster.refused:
        remedy = f"allow Describe on the group {group}"
        return not_checked(check, f"this user may not describe the group {group}", remedy)
    found = cluster.groups.get(group)
    if found is not None and found.active:
        standby = f", {_count(found.waiting, 'other')} waiting" if found.waiting else ""
        return ok(check, f"one runs on {', '.join(found.active)} and has the lease{standby}")
    return warning(check, "none runs, so nothing is summed", "start tallystream aggregate")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
