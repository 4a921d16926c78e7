"""Checks of the brokers: their topics and transactions, and whether an aggregator runs.

Asking creates no topic but Kafka's own: a broker makes that of the groups' offsets for a request about a group, and
that of the transactions when a transactional ID is opened, which is the only way to ask for one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.lease import GROUP
from tallystream_aggregator.kafka.topics import policies
from tallystream_aggregator.stream.kafka.calls import Timeouts
from tallystream_cli.doctor.findings import failed, not_checked, ok, warning
from tallystream_dashboards.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.doctor.findings import Finding

LOGIN_S = 5.0
"""How long a broker is looked for."""

TIMEOUT_S = 30.0
"""The time for one request. A broker that is asked for a group for the first time makes the topic of the offsets."""

TRANSACTION_TIMEOUT_MS = int(1000 * Timeouts().transaction_s)
_NO_GROUP = {
    KafkaError.GROUP_ID_NOT_FOUND,
    KafkaError.NOT_COORDINATOR,  # this and the next two: the coordinator is being elected
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
ANY = {"groups": "a-group-of-nobody", "topics": "a-topic-of-nobody"}
"""Names that only a user who may describe all of a kind may describe."""

_REFUSED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}


@dataclass(frozen=True, slots=True)
class Brokers:
    """What the brokers know. `topics` and `groups` are the descriptions of confluent-kafka by name.

    `configs` lacks topics whose configuration this user may not see. Topics and groups in `refused` may exist: this
    user may not describe them. `transactions` is "" if a transactional ID could be opened, or else the name of Kafka's
    error.
    """

    servers: str
    number: int
    topics: Mapping[str, Any]
    configs: Mapping[str, Mapping[str, str]]
    groups: Mapping[str, Any] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    transactions: str = ""


def fetch(kafka: Mapping[str, str], topics: Topics, transactional_id: str) -> Brokers:
    """Return what the brokers know of the topics and of the group of the lease. `kafka` are librdkafka's options.

    It opens `transactional_id`, which nobody uses; no transaction is begun.

    Raises:
        ConfigError: no broker answers, or librdkafka rejects an option.
        LoginError: the broker rejected the user or the certificate.
        KafkaException: a broker did not answer in time.
    """
    check_login(kafka, max_wait_s=LOGIN_S)
    admin = clients.admin(kafka)
    described, refused = _split(
        admin.describe_topics(TopicCollection([*sorted(policies(topics)), ANY["topics"]]), request_timeout=TIMEOUT_S),
        missing={KafkaError.UNKNOWN_TOPIC_OR_PART},
    )
    asked = admin.describe_consumer_groups([topics.prefix + GROUP, ANY["groups"]], request_timeout=TIMEOUT_S)
    found, hidden = _split(asked, missing=_NO_GROUP)
    return Brokers(
        kafka["bootstrap.servers"],
        len(admin.describe_cluster(request_timeout=TIMEOUT_S).result().nodes),
        described,
        _configs(admin, described),
        found,
        refused | hidden,
        _open(kafka, transactional_id),
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


def _open(kafka: Mapping[str, str], transactional_id: str) -> str:
    options = {**kafka, "transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    try:
        clients.producer(options).init_transactions(Timeouts().transaction_s)  # a broker may make its topic first
    except KafkaException as error:
        return str(error.args[0].name())
    return ""


def findings(brokers: Brokers, names: Topics) -> Iterator[Finding]:
    """Check the brokers, their transactions, each topic, whether an aggregator runs, and what a lag collector sees."""
    yield ok("broker", f"{brokers.servers}: {counted(brokers.number, 'broker')}")
    yield transactions(brokers)
    yield from topics(brokers, names)
    yield lease(brokers, names)
    yield lag(brokers)


def transactions(brokers: Brokers) -> Finding:
    """Check that a transaction can have our timeout."""
    check, opened = "transactions", brokers.transactions
    if opened.endswith("AUTHORIZATION_FAILED"):
        return not_checked(check, "this user may not use the aggregator's transactional IDs")
    if opened == "INVALID_TRANSACTION_TIMEOUT":
        limit = f"{TRANSACTION_TIMEOUT_MS} or more"
        return failed(check, f"transaction.max.timeout.ms of the brokers is not {limit}", f"set it to {limit}")
    if opened:
        remedy = "check the replicas of __transaction_state"
        return failed(check, f"no transactional ID can be opened: {opened}", remedy)
    return ok(check, "they can be begun")


def topics(brokers: Brokers, names: Topics) -> Iterator[Finding]:
    """Check each topic: whether it exists, its partitions and its configuration."""
    expected = policies(names)
    if names.shards not in brokers.topics:  # a table of one shard does not have it
        del expected[names.shards]
    if not brokers.refused and not any(name in brokers.topics for name in expected):
        remedy = "start tallystream aggregate, which creates them, or correct --topic-prefix"
        yield warning("topics", f"{', '.join(expected)} do not exist yet", remedy)
        return
    several = {names.metrics, names.table, names.shards, *names.otlp}
    for name, policy in expected.items():
        check = f"topic {name}"
        if name in brokers.refused:
            yield not_checked(check, "this user may not describe it, or it does not exist", f"allow Describe on {name}")
        elif name not in brokers.topics:
            yield failed(check, "it does not exist", "start tallystream aggregate, which creates it")
        elif leaderless := [
            str(one.id) for one in brokers.topics[name].partitions if one.leader is None or one.leader.id < 0
        ]:
            yield failed(check, f"no leader of partition {', '.join(leaderless)}", "start the broker that has it")
        elif (number := len(brokers.topics[name].partitions)) > 1 and name not in several:
            remedy = "stop all commands, delete the topic, and start the aggregator, which creates it"
            yield failed(check, f"{number} partitions, but it must have one", remedy)
        elif name not in brokers.configs:
            yield not_checked(check, "this user may not see its configuration", f"allow DescribeConfigs on {name}")
        else:
            yield _configuration(check, name, policy, brokers.configs[name], number)


def _configuration(
    check: str, name: str, policy: Mapping[str, str], config: Mapping[str, str], partitions: int
) -> Finding:
    """Compare a configuration with the policy. A longer time or a larger size is an operator's choice.

    Other words break the system, and lower numbers are a warning. -1 is unlimited.
    """
    other = {key for key, value in policy.items() if not value.isdigit() and config.get(key) != value}
    lower = {
        key
        for key, value in policy.items()
        if value.isdigit() and (found := config.get(key, "")) != "-1" and int(found or 0) < int(value)
    }
    wrong = [key for key in policy if key in other | lower]
    if not wrong:
        return ok(check, f"{counted(partitions, 'partition')}, configured as in docs/record.md")
    text = "; ".join(f"{key} is {config.get(key)}, not {policy[key]}" for key in wrong)
    entries = ",".join(f"{key}={policy[key]}" for key in wrong)
    remedy = f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config {entries}"
    return (failed if other else warning)(check, text, remedy)


def lease(brokers: Brokers, names: Topics) -> Finding:
    """Check whether an aggregator runs: whether one has the lease."""
    check, group = "aggregator", names.prefix + GROUP
    if group in brokers.refused:
        remedy = f"allow Describe on the group {group}"
        return not_checked(check, f"this user may not describe the group {group}", remedy)
    members = brokers.groups[group].members if group in brokers.groups else []
    holders = [one.host.lstrip("/") for one in members if one.assignment.topic_partitions]
    if not holders:
        return warning(check, "none runs, so nothing is summed", "start tallystream aggregate")
    waiting = len(members) - len(holders)
    standby = f", {counted(waiting, 'other')} waiting" if waiting else ""
    return ok(check, f"one runs on {', '.join(holders)} and has the lease{standby}")


def lag(brokers: Brokers) -> Finding:
    """Check that this user may describe everything. Kafka leaves out what it may not describe, without an error."""
    if hidden := " and ".join(kind for kind, name in ANY.items() if name in brokers.refused):
        found = f"this user may not describe all {hidden}, and lag collect would leave them out"
        return warning("lag", found, f"allow Describe on the {hidden} *, if this user runs lag collect")
    return ok("lag", "this user may describe all groups and topics")
