"""What the brokers know: topics, consumer groups, and what this user may do with them. Asking creates nothing.

A request about a group makes a broker create the topic of its groups' offsets, and a consumer that reads a topic may
create that topic. So groups are asked for only if that topic exists, and no record is read. A transactional ID can be
asked for only by opening it, which creates the topic of the transactions. So that is tried only if the topic exists.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.stream.kafka.calls import Timeouts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from confluent_kafka.admin import ConsumerGroupDescription, TopicDescription

TIMEOUT_S = 5.0
"""The time for one request to the brokers."""

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
TRANSACTION_TIMEOUT_MS = int(1000 * Timeouts().transaction_s)
_API = re.compile(r"ApiKey (\w+) \(\d+\) Versions \d+\.\.(\d+)")
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
    """A topic. `replicas`, `in_sync` and `leaders` (broker IDs, None without one) are by partition.

    `config` is None if this user may not see it. `records` is the number of offsets between the ends of all partitions.
    """

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leaders: tuple[int | None, ...]
    operations: Operations | None
    config: Mapping[str, str] | None = None
    records: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group: the hosts of the members with partitions, and the number of other members."""

    operations: Operations | None
    active: tuple[str, ...] = ()
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers. `apis` has the highest version of each request. Topics in `refused` may exist.

    A group is missing if it can't be asked for, or if this user may not see it, which `refused_groups` has.
    `transactions` is "" if a transactional ID could be opened, or else the name of Kafka's error; None: none was tried.
    """

    servers: str
    id: str
    brokers: int
    apis: Mapping[str, int] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    groups: Mapping[str, Group] = field(default_factory=dict)
    refused_groups: frozenset[str] = frozenset()
    transactions: str | None = None


def fetch(kafka: Mapping[str, str], topics: Iterable[str], groups: Iterable[str]) -> Cluster:
    """Return what the brokers know of some topics and groups. `kafka` are librdkafka's options.

    Raises:
        ConfigError: no broker answers, or librdkafka rejects an option.
        LoginError: the broker rejected the user or the certificate.
        KafkaException: a broker did not answer in time.
    """
    check_login(kafka, max_wait_s=TIMEOUT_S)
    admin = clients.admin(kafka)
    cluster = admin.describe_cluster(request_timeout=TIMEOUT_S).result()
    described, refused = _described_topics(admin, topics)
    configs = _configs(admin, described)
    sizes = _records(admin, described)
    group_answers, refused_groups = _described_groups(admin, groups) if _has_coordinators(admin) else ({}, frozenset())
    return Cluster(
        servers=kafka["bootstrap.servers"],
        id=str(cluster.cluster_id),
        brokers=len(cluster.nodes),
        apis=_apis(kafka),
        topics={name: _topic(found, configs.get(name), sizes[name]) for name, found in described.items()},
        refused=refused,
        groups={name: _group(found) for name, found in group_answers.items()},
        refused_groups=refused_groups,
    )


def open_transactional_id(kafka: Mapping[str, str], transactional_id: str) -> str:
    """Open a transactional ID that nobody uses, with the timeout of the loop's transactions; none is begun.

    Return "", or the name of Kafka's error.
    """
    options = {**kafka, "transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    try:
        clients.producer(options).init_transactions(TIMEOUT_S)
    except KafkaException as error:
        return str(error.args[0].name())
    return ""


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _apis(kafka: Mapping[str, str]) -> dict[str, int]:
    """Return the highest version of each request that the first broker knows.

    librdkafka requests them after each login. Only its log has the answer.
    """
    handler = _Lines()
    log = logging.getLogger("tallystream.doctor.librdkafka")
    log.propagate = False
    log.setLevel(logging.DEBUG)
    log.addHandler(handler)
    admin = clients.admin({**kafka, "debug": "feature"}, logger=log)
    admin.list_topics(timeout=TIMEOUT_S)
    admin.poll(0.1)  # delivers the log
    log.removeHandler(handler)
    return {found[1]: int(found[2]) for line in handler.lines if (found := _API.search(line))}


def _described_topics(admin: AdminClient, names: Iterable[str]) -> tuple[dict[str, TopicDescription], frozenset[str]]:
    wanted = TopicCollection(sorted(names))
    answers = admin.describe_topics(wanted, include_authorized_operations=True, request_timeout=TIMEOUT_S)
    return _split(answers, missing={KafkaError.UNKNOWN_TOPIC_OR_PART})


def _described_groups(
    admin: AdminClient, names: Iterable[str]
) -> tuple[dict[str, ConsumerGroupDescription], frozenset[str]]:
    wanted = sorted(names)
    answers = admin.describe_consumer_groups(wanted, include_authorized_operations=True, request_timeout=TIMEOUT_S)
    return _split(answers, missing=_NO_GROUP)


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


def _records(admin: AdminClient, described: Mapping[str, TopicDescription]) -> Counter[str]:
    """Return the number of offsets of each topic. Partitions without an answer, as those without a leader, count 0."""
    partitions = [TopicPartition(name, one.id) for name, topic in described.items() for one in topic.partitions]
    sizes: Counter[str] = Counter()
    for at, info in _offsets(admin, partitions, OffsetSpec.latest()):  # type: ignore[no-untyped-call]
        sizes[at.topic] += info.offset
    for at, info in _offsets(admin, partitions, OffsetSpec.earliest()):  # type: ignore[no-untyped-call]
        sizes[at.topic] -= info.offset
    return sizes


def _offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec
) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield the answers. Partitions without an answer, as those without a leader, are left out."""
    request = dict.fromkeys(partitions, spec)
    answers = admin.list_offsets(request, request_timeout=TIMEOUT_S) if request else {}
    for at, future in answers.items():
        with suppress(KafkaException):
            yield at, future.result()


def _has_coordinators(admin: AdminClient) -> bool:
    if OFFSETS in admin.list_topics(timeout=TIMEOUT_S).topics:
        return True
    return bool(admin.list_consumer_groups(request_timeout=TIMEOUT_S).result().valid)


def _topic(found: TopicDescription, config: Mapping[str, str] | None, records: int) -> Topic:
    partitions = found.partitions
    return Topic(
        replicas=tuple(len(one.replicas) for one in partitions),
        in_sync=tuple(len(one.isr) for one in partitions),
        leaders=tuple(None if one.leader is None or one.leader.id < 0 else one.leader.id for one in partitions),
        operations=_operations(found.authorized_operations),
        config=config,
        records=records,
    )


def _group(found: ConsumerGroupDescription) -> Group:
    holders = tuple(one.host.lstrip("/") for one in found.members if one.assignment.topic_partitions)
    return Group(_operations(found.authorized_operations), holders, len(found.members) - len(holders))


def _operations(found: Iterable[Any] | None) -> Operations | None:
    """Return Kafka's words, such as DescribeConfigs, None if the broker does not tell."""
    if found is None:
        return None
    return frozenset("".join(word.capitalize() for word in one.name.split("_")) for one in found)
