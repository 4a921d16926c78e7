"""The start position of a new table: earliest, latest, a group's offsets, a time, the ledger at a time, or offsets."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec
from confluent_kafka import TopicPartition

from tallystream.decoding import json_decoder
from tallystream.errors import ConfigError
from tallystream_aggregator.kafka import clients, ledger
from tallystream_aggregator.kafka.partition_bounds import at_times, bounds_of
from tallystream_aggregator.kafka.topic_selection import Offsets, by_partition, by_topic
from tallystream_aggregator.times import parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import Consumer

    from tallystream_aggregator.kafka.ledger import LedgerRow

OPTION = "--from"
REMEDY = (
    "give earliest, latest, group, a time in UTC as in 2026-11-20T10:00, ledger:2026-11-20T10:00, or offsets as in "
    '{"metrics":{"0":123}}'
)
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_decode_offsets = json_decoder(Offsets)

Place = tuple[str, int]
"""(topic, partition)"""


@dataclass(frozen=True, slots=True)
class At:
    """The first record appended at or after `ts_ms`. With `ledger`, the end of the last epoch that began by then."""

    ts_ms: int
    ledger: bool = False


Start = Literal["earliest", "latest", "group"] | At | Offsets


def parse_start(text: str) -> Start:
    """Return the start position in `text`. A time without an offset from UTC is in UTC.

    Raises:
        ConfigError: the text has none of the forms.
    """
    if text in ("earliest", "latest", "group"):
        return text  # type: ignore[return-value]  # the three literals
    if text.startswith("{"):
        try:
            offsets = _decode_offsets(text)
        except msgspec.DecodeError as error:
            raise ConfigError(OPTION, text, REMEDY) from error
        if not all(_PARTITION.fullmatch(partition) for partitions in offsets.values() for partition in partitions):
            raise ConfigError(OPTION, text, REMEDY)
        return offsets
    kind, _, when = text.rpartition("ledger:")
    try:
        at_ms = parse_time_ms(when)
    except ValueError as error:
        raise ConfigError(OPTION, text, REMEDY) from error
    if kind:
        raise ConfigError(OPTION, text, REMEDY)
    return At(at_ms, ledger=text.startswith("ledger:"))


def resolve(
    start: Start,
    read: Mapping[str, list[int]],
    group: str,
    ledger_topic: str,
    kafka: Mapping[str, str],
) -> Offsets:
    """Return the offset at which `start` begins, for each partition in `read`, but at least the partition's first one.

    `read` and the result are by topic and partition.

    Raises:
        ConfigError: a partition has no start position: the group has no offset of it, the ledger begins later, or the
            offsets do not name it. Or the offset of a partition is beyond its end.
        KafkaException: the broker did not answer in time.
    """
    places = [TopicPartition(topic, p) for topic, partitions in read.items() for p in partitions]
    with clients.metadata_consumer(kafka, group) as consumer:
        recorded = _recorded(start, places, consumer, ledger_topic, kafka)  # before the ends, which may increase
        bounds = {_place(tp): bounds_of(consumer, tp, timeout=clients.TIMEOUT_S) for tp in places}
        wanted: dict[Place, int] = {}
        if start == "latest":
            wanted = {place: high for place, (_, high) in bounds.items()}
        elif start == "earliest":
            wanted = {place: low for place, (low, _) in bounds.items()}
        elif recorded is not None:
            wanted = recorded
            _require_existing(start, wanted, bounds)
        elif isinstance(start, At):
            times = [TopicPartition(tp.topic, tp.partition, start.ts_ms) for tp in places]
            found = at_times(consumer, times, timeout=clients.TIMEOUT_S)
            wanted = {_place(tp): tp.offset if tp.offset >= 0 else bounds[_place(tp)][1] for tp in found}
    missing: dict[str, list[int]] = {}
    offsets: dict[Place, int] = {}
    for (topic, partition), (low, _) in bounds.items():
        if wanted.get((topic, partition), -1) < 0:
            missing.setdefault(topic, []).append(partition)
        else:
            offsets[topic, partition] = max(low, wanted[topic, partition])
    if missing:
        listing = "; ".join(f"{topic}, partitions {partitions}" for topic, partitions in missing.items())
        raise ConfigError(OPTION, _text(start), f"it has no offset for {listing}; {REMEDY}")
    return by_topic(offsets)


def _place(tp: TopicPartition) -> Place:
    return tp.topic, tp.partition


def _recorded(
    start: Start, places: list[TopicPartition], consumer: Consumer, ledger_topic: str, kafka: Mapping[str, str]
) -> dict[Place, int] | None:
    """Return the offsets of the group, of the ledger or of the option, None for another kind of start position."""
    if start == "group":
        return {_place(tp): tp.offset for tp in consumer.committed(places, timeout=clients.TIMEOUT_S)}
    if isinstance(start, At) and start.ledger:
        return by_partition(_from_ledger(start, ledger_topic, kafka))
    return by_partition(start) if isinstance(start, dict) else None


def _require_existing(start: Start, wanted: Mapping[Place, int], bounds: Mapping[Place, tuple[int, int]]) -> None:
    beyond = [
        f"{topic}, partition {partition}, ends at {high}, before {wanted[topic, partition]}"
        for (topic, partition), (_, high) in bounds.items()
        if wanted.get((topic, partition), -1) > high
    ]
    if beyond:
        raise ConfigError(OPTION, _text(start), f"{'; '.join(beyond)}; {REMEDY}")


def _from_ledger(start: At, ledger_topic: str, kafka: Mapping[str, str]) -> Offsets:
    return begin_of(ledger.read_rows(ledger_topic, kafka, last=2**62), start.ts_ms)


def begin_of(rows: Iterable[LedgerRow], at_ms: int) -> Offsets:
    """Return where the last epoch begins that began by this time, nothing if there is none.

    It may last a minute, so its end would leave out records that came after the time.
    """
    begins = [row.start for row in rows if row.kind == "epoch" and row.ts <= at_ms]
    return begins[-1] if begins else {}


def _text(start: Start) -> str:
    if isinstance(start, At):
        return ("ledger:" if start.ledger else "") + datetime.fromtimestamp(start.ts_ms / 1000, UTC).isoformat()
    return start if isinstance(start, str) else json.dumps(start)
