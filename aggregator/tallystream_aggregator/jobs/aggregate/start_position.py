"""The start position of a new table: earliest, latest, a group's offsets, a time, the ledger at a time, or offsets."""

from __future__ import annotations

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
from tallystream_aggregator.kafka.topic_selection import Offsets
from tallystream_aggregator.stream.broker import Place, Positions
from tallystream_aggregator.stream.positions import by_place, by_topic
from tallystream_aggregator.times import parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.kafka.ledger import LedgerRow

OPTION = "--from"
REMEDY = (
    "give earliest, latest, group, a time in UTC as in 2026-11-20T10:00, ledger:2026-11-20T10:00, or offsets as in "
    '{"metrics":{"0":123}}'
)
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_decode_offsets = json_decoder(Offsets)


@dataclass(frozen=True, slots=True)
class At:
    """The first record appended at or after `ts_ms`. With `ledger`, the end of the last epoch that began by then."""

    ts_ms: int
    ledger: bool = False

    def __str__(self) -> str:
        return ("ledger:" if self.ledger else "") + datetime.fromtimestamp(self.ts_ms / 1000, UTC).isoformat()


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
    when = text.removeprefix("ledger:")
    try:
        return At(parse_time_ms(when), ledger=when != text)
    except ValueError as error:
        raise ConfigError(OPTION, text, REMEDY) from error


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
    recorded: Positions | None = None
    with clients.metadata_consumer(kafka, group) as consumer:
        if start == "group":
            committed = consumer.committed(places, timeout=clients.TIMEOUT_S)
            recorded = {Place(tp.topic, tp.partition): tp.offset for tp in committed}
        elif isinstance(start, At) and start.ledger:
            recorded = by_place(begin_of(ledger.read_rows(ledger_topic, kafka, last=None), start.ts_ms))
        elif isinstance(start, dict):
            recorded = by_place(start)
        # After these, as the ends may increase.
        bounds = {Place(tp.topic, tp.partition): bounds_of(consumer, tp, timeout=clients.TIMEOUT_S) for tp in places}
        wanted = {place: high if start == "latest" else low for place, (low, high) in bounds.items()}
        if recorded is not None:
            _require_offsets(start, recorded, bounds)
            wanted = recorded
        elif isinstance(start, At):
            times = [TopicPartition(*place, start.ts_ms) for place in bounds]
            for tp in at_times(consumer, times, timeout=clients.TIMEOUT_S):
                place = Place(tp.topic, tp.partition)
                wanted[place] = tp.offset if tp.offset >= 0 else bounds[place][1]
    return by_topic({place: max(low, wanted[place]) for place, (low, _) in bounds.items()})


def _require_offsets(start: Start, found: Positions, bounds: Mapping[Place, tuple[int, int]]) -> None:
    """Require an offset for each partition, at most its end."""
    wrong = []
    for place, (_, high) in bounds.items():
        offset = found.get(place, -1)
        if offset < 0:
            wrong.append(f"it has no offset for {place.topic}, partition {place.partition}")
        elif offset > high:
            wrong.append(f"{place.topic}, partition {place.partition}, ends at {high}, before {offset}")
    if wrong:
        raise ConfigError(OPTION, str(start), f"{'; '.join(wrong)}; {REMEDY}")


def begin_of(rows: Iterable[LedgerRow], at_ms: int) -> Offsets:
    """Return where the last epoch begins that began by this time, nothing if there is none.

    It may last a minute, so its end would leave out records that came after the time.
    """
    begins = [row.start for row in rows if row.kind == "epoch" and row.ts <= at_ms]
    return begins[-1] if begins else {}
