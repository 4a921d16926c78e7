"""Where a new table begins to read: earliest, latest, a group's offsets, a time, the ledger at a time, or offsets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec
from confluent_kafka import Consumer, TopicPartition

from tallystream.aggregator import ledger
from tallystream.reporter.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTION = "--from"
REMEDY = (
    "give earliest, latest, group, a time in UTC as in 2026-11-20T10:00, ledger:2026-11-20T10:00, or offsets as in "
    '{"metrics":{"0":123}}'
)
Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class At:
    """The first record appended at or after `ts_ms`; with `ledger`, the end of the last batch finished by then."""

    ts_ms: int
    ledger: bool = False


Start = Literal["earliest", "latest", "group"] | At | Offsets


def parse_start(text: str) -> Start:
    """Return what `text` asks for; a time without an offset from UTC is in UTC.

    Raises:
        ConfigError: it is none of the forms.
    """
    if text in ("earliest", "latest", "group"):
        return text  # type: ignore[return-value]  # the three literals
    if text.startswith("{"):
        try:
            return msgspec.json.decode(text, type=Offsets)
        except msgspec.DecodeError as error:
            raise ConfigError(OPTION, text, REMEDY) from error
    kind, _, when = text.rpartition("ledger:")
    try:
        at = datetime.fromisoformat(when)
    except ValueError as error:
        raise ConfigError(OPTION, text, REMEDY) from error
    if kind:
        raise ConfigError(OPTION, text, REMEDY)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return At(int(at.timestamp() * 1000), ledger=text.startswith("ledger:"))


def resolve(
    start: Start, topic: str, group: str, ledger_topic: str, kafka: Mapping[str, str], *, timeout: float = 30.0
) -> dict[int, int]:
    """Return the offset of each partition of `topic` at which `start` begins; never below the first one that is there.

    Raises:
        ConfigError: there is nothing to begin at: the group has no offsets, the ledger is younger, or a partition
            is not named.
        KafkaException: the broker did not answer within `timeout` seconds.
    """
    consumer = Consumer({**kafka, "group.id": group, "enable.auto.commit": False})
    try:
        known = sorted(consumer.list_topics(topic, timeout=timeout).topics[topic].partitions)
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=timeout) for p in known}
        if start == "latest":
            return {p: high for p, (_, high) in ends.items()}
        firsts = {p: low for p, (low, _) in ends.items()}
        if start == "earliest":
            return firsts
        if start == "group":
            wanted = {tp.partition: tp.offset for tp in consumer.committed(_partitions(topic, known), timeout=timeout)}
        elif isinstance(start, At) and start.ledger:
            wanted = _from_ledger(start, topic, ledger_topic, kafka)
        elif isinstance(start, At):
            asked = [TopicPartition(topic, p, start.ts_ms) for p in known]
            found = consumer.offsets_for_times(asked, timeout=timeout)
            wanted = {tp.partition: tp.offset if tp.offset >= 0 else ends[tp.partition][1] for tp in found}
        else:
            wanted = {int(p): offset for p, offset in start.get(topic, {}).items()}
    finally:
        consumer.close()
    missing = [p for p in known if wanted.get(p, -1) < 0]
    if missing:
        raise ConfigError(OPTION, _text(start), f"it says nothing about {topic}, partitions {missing}; {REMEDY}")
    return {p: max(firsts[p], wanted[p]) for p in known}


def _partitions(topic: str, known: list[int]) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for p in known]


def _from_ledger(start: At, topic: str, ledger_topic: str, kafka: Mapping[str, str]) -> dict[int, int]:
    rows = [ledger.decode(value) for value in ledger.read_tail(ledger_topic, kafka, rows=2**62)]
    ends = [row.end for row in rows if row.kind == "batch" and row.query == ledger.QUERY and row.ts <= start.ts_ms]
    return {int(p): offset for p, offset in ends[-1].get(topic, {}).items()} if ends else {}


def _text(start: Start) -> str:
    if isinstance(start, At):
        return ("ledger:" if start.ledger else "") + datetime.fromtimestamp(start.ts_ms / 1000, UTC).isoformat()
    return start if isinstance(start, str) else json.dumps(start)
