"""The topics: their names, their configuration, and their creation."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.clients import TIMEOUT_S
from tallystream_aggregator.times import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confluent_kafka.admin import AdminClient

TABLE_RECORD_BYTES = 32 * 1024 * 1024
"""The largest record of `metrics-table`. A record has all metrics of a part of a life, at most ten thousand."""
_ALLOWED = re.compile(r"[A-Za-z0-9._-]{0,200}")


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the seven topics. A prefix separates several systems on one broker."""

    prefix: str = ""
    otlp: tuple[str, ...] = ()
    metrics: str = field(init=False, default="metrics")
    agg: str = field(init=False, default="metrics-agg")
    table: str = field(init=False, default="metrics-table")
    events: str = field(init=False, default="metrics-events")
    ledger: str = field(init=False, default="metrics-ledger")
    dead: str = field(init=False, default="metrics-dead")
    shards: str = field(init=False, default="metrics-shards")

    def __post_init__(self) -> None:
        if not _ALLOWED.fullmatch(self.prefix):
            raise ConfigError(
                "--topic-prefix", self.prefix, "use up to 200 letters, digits, dots, hyphens, underscores"
            )
        for name in ("metrics", "agg", "table", "events", "ledger", "dead", "shards"):
            object.__setattr__(self, name, self.prefix + str(getattr(self, name)))


def policies(topics: Topics) -> dict[str, dict[str, str]]:
    """Return the configuration of each topic by name. docs/record.md gives the reasons."""
    week, year = str(7 * DAY_MS), str(365 * DAY_MS)
    read = {"cleanup.policy": "delete", "retention.ms": week, "message.timestamp.type": "LogAppendTime"}
    compacted = {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(HOUR_MS),
        "delete.retention.ms": str(DAY_MS),
        "max.message.bytes": str(TABLE_RECORD_BYTES),
    }
    return {
        topics.metrics: read,
        **dict.fromkeys(topics.otlp, read),
        topics.agg: {"cleanup.policy": "compact", "min.compaction.lag.ms": week},
        topics.table: compacted,
        topics.events: {"cleanup.policy": "delete", "retention.ms": year},
        topics.ledger: {"cleanup.policy": "delete", "retention.ms": year},
        topics.dead: {"cleanup.policy": "delete", "retention.ms": week},
        topics.shards: compacted,
    }


def create_topics(
    admin: AdminClient,
    topics: Topics,
    *,
    partitions: int = 1,
    shards: int = 1,
    only: Collection[str] | None = None,
) -> list[str]:
    """Create the missing topics, or those in `only`, and return their names. Existing topics do not change.

    `partitions` is the number for `metrics`. `metrics-table` has one for each of the table's `shards`, the others have
    one. A table of several shards also uses `metrics-shards`, with a partition for each shard and the combiner's: it is
    created only if `only` names it, when the number of shards is certain. The replication factor is the brokers'
    default. Several commands may call this at the same time. It returns when the brokers know the partitions of every
    topic.

    Raises:
        ConfigError: the topic `metrics` exists without LogAppendTime: the table's clock would be the producers'.
        KafkaException: the broker rejected the request, or did not answer in time.
    """
    # Only missing topics are created: without the permission to create, the broker rejects existing ones, too.
    known, of = admin.list_topics(timeout=TIMEOUT_S).topics, policies(topics)
    numbers = {topics.metrics: partitions, topics.table: shards, topics.shards: shards + 1 if shards > 1 else 0}
    names = only or of.keys() - {topics.shards}
    wanted = {name: numbers.get(name, 1) for name in of if name in names and numbers.get(name, 1)}
    new = [NewTopic(name, number, config=dict(of[name])) for name, number in wanted.items() if name not in known]
    futures = admin.create_topics(new, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S) if new else {}
    created = list[str]()
    for name, future in futures.items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another command has just created it
                raise
    _wait_until_known(admin, wanted)
    if topics.metrics in wanted and topics.metrics not in created:
        require_append_time(admin, [topics.metrics])
    return created


def require_partitions(admin: AdminClient, topics: Topics, *, shards: int) -> None:
    """Require that the output topics that exist have the partitions that a table of `shards` needs.

    Raises:
        ConfigError: a topic has another number of partitions.
        KafkaException: the broker did not answer in time.
    """
    known = admin.list_topics(timeout=TIMEOUT_S).topics
    several = {topics.table: shards} | ({topics.shards: shards + 1} if shards > 1 else {})
    for name in (*several, topics.agg, topics.events, topics.ledger, topics.dead):
        found, needed = len(known[name].partitions) if name in known else 0, several.get(name, 1)
        if 0 < found < needed:
            remedy = (
                f"a table of {shards} shards needs {needed}: add partitions, as with kafka-topics.sh --alter --topic "
                f"{name} --partitions {needed}"
            )
            raise ConfigError(f"partitions of the topic {name}", found, remedy)
        if name not in several and found > 1:
            remedy = (
                "it must have one, and Kafka can't remove partitions: stop all commands, delete the topic, and start "
                "the aggregator, which creates it"
            )
            raise ConfigError(f"partitions of the topic {name}", found, remedy)


def _wait_until_known(admin: AdminClient, names: Iterable[str]) -> None:
    # The controller knows a topic that another command has just created before the brokers do. If a topic is still
    # unknown after that, its reader reports it.
    missing, deadline = set(names), time.monotonic() + TIMEOUT_S
    while missing and time.monotonic() < deadline:
        known = admin.list_topics(timeout=TIMEOUT_S).topics
        missing = {name for name in missing if name not in known or not known[name].partitions}
        if missing:
            time.sleep(0.05)


def require_append_time(admin: AdminClient, topics: Iterable[str]) -> None:
    """Require that every topic has the broker's append times.

    Raises:
        ConfigError: a topic does not have LogAppendTime: the table's clock would be the producers'.
        KafkaException: the broker did not answer in time.
    """
    for topic in topics:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        config: Mapping[str, object] = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result()
        kind = getattr(config["message.timestamp.type"], "value", None)
        if kind != "LogAppendTime":
            raise ConfigError(
                f"message.timestamp.type of the topic {topic}",
                kind,
                "set it to LogAppendTime: the table's clock is the broker's",
            )
