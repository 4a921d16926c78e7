"""What the brokers know: topics, consumer groups, and what this user may do with them. Asking creates nothing.

A request about a group makes a broker create the topic of its groups' offsets, and a consumer that reads a topic may
create that topic. So groups are asked for only if that topic exists, and no record is read.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka.admin import ConsumerGroupDescription, TopicDescription

TIMEOUT_S = 5.0
"""The time for one request to the brokers."""

OFFSETS = "__consumer_offsets"
_API = re.compile(r"ApiKey (\w+) \(\d+\) Versions \d+\.\.(\d+)")
_REFUSED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}

Operations = frozenset[str]
"""The operations that this user may perform, in Kafka's words: Read, DescribeConfigs."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `replicas`, `in_sync` and `leaders` (broker IDs, None without one) are by partition.

    `config` is None if this user may not see it. `records` is the number of offsets between the ends of all partitions.
    """

    id: str
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
    """

    servers: str
    id: str
    brokers: int
    apis: Mapping[str, int] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    groups: Mapping[str, Group] = field(default_factory=dict)
    refused_groups: frozenset[str] = frozenset()


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
        topics={name: _topic(found, configs.get(name), sizes.get(name, 0)) for name, found in described.items()},
        refused=refused,
        groups={name: _group(found) for name, found in group_answers.items()},
        refused_groups=refused_groups,
    )


def newest(admin: AdminClient, topic: str, partitions: int) -> dict[int, int]:
    """Return the highest timestamp of the records of each partition, in epoch ms, if it has any.

    Raises:
        KafkaException: a broker did not answer in time.
    """
    spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    return {at.partition: info.timestamp for at, info in _offsets(admin, topic, partitions, spec) if info.timestamp > 0}


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
    admin = AdminClient({**kafka, "debug": "feature"}, logger=log)
    admin.list_topics(timeout=TIMEOUT_S)
    admin.poll(0.1)  # delivers the log
    log.removeHandler(handler)
    return {found[1]: int(found[2]) for line in handler.lines if (found := _API.search(line))}


def _described_topics(admin: AdminClient, names: Iterable[str]) -> tuple[dict[str, TopicDescription], frozenset[str]]:
    wanted = TopicCollection(sorted(names))
    answers = admin.describe_topics(wanted, include_authorized_operations=True, request_timeout=TIMEOUT_S)
    return _split(answers, missing=KafkaError.UNKNOWN_TOPIC_OR_PART)


def _described_groups(
    admin: AdminClient, names: Iterable[str]
) -> tuple[dict[str, ConsumerGroupDescription], frozenset[str]]:
    wanted = sorted(names)
    answers = admin.describe_consumer_groups(wanted, include_authorized_operations=True, request_timeout=TIMEOUT_S)
    return _split(answers, missing=KafkaError.GROUP_ID_NOT_FOUND)


def _split(answers: Mapping[str, Any], *, missing: int) -> tuple[dict[str, Any], frozenset[str]]:
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
            elif error.args[0].code() != missing:
                raise
    return found, frozenset(refused)


def _configs(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    answers = admin.describe_configs(resources, request_timeout=TIMEOUT_S) if resources else {}
    found, _ = _split({one.name: future for one, future in answers.items()}, missing=KafkaError.UNKNOWN_TOPIC_OR_PART)
    return {name: {key: str(entry.value) for key, entry in config.items()} for name, config in found.items()}


def _records(admin: AdminClient, described: Mapping[str, TopicDescription]) -> dict[str, int]:
    first, end = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    sizes = {}
    for name, topic in described.items():
        ends, starts = (
            sum(info.offset for _, info in _offsets(admin, name, len(topic.partitions), spec)) for spec in (end, first)
        )
        sizes[name] = ends - starts
    return sizes


def _offsets(admin: AdminClient, topic: str, partitions: int, spec: OffsetSpec) -> list[tuple[TopicPartition, Any]]:
    request = {TopicPartition(topic, number): spec for number in range(partitions)}
    answers = admin.list_offsets(request, request_timeout=TIMEOUT_S, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    return [(at, future.result()) for at, future in answers.items()]


def _has_coordinators(admin: AdminClient) -> bool:
    if OFFSETS in admin.list_topics(timeout=TIMEOUT_S).topics:
        return True
    return bool(admin.list_consumer_groups(request_timeout=TIMEOUT_S).result().valid)


def _topic(found: TopicDescription, config: Mapping[str, str] | None, records: int) -> Topic:
    partitions = found.partitions
    return Topic(
        id=str(found.topic_id),
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
