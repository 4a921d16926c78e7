"""The start position of a new table: earliest, latest, a time, or offsets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.topic_selection import Offsets
from tallystream_aggregator.stream.broker import Place, Positions, unknown
from tallystream_aggregator.stream.positions import by_place, by_topic
from tallystream_aggregator.times import parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tallystream_aggregator.stream.broker import Bounds
    from tallystream_aggregator.stream.kafka.broker import KafkaBroker

OPTION = "--from"
REMEDY = 'give earliest, latest, a time in UTC as in 2026-11-20T10:00, or offsets as in {"metrics":{"0":123}}'
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_decode_offsets = json_decoder(Offsets)


Start = Literal["earliest", "latest"] | int | Offsets
"""A number is a time in epoch ms. It stands for the first record appended at or after it."""


def parse_start(text: str) -> Start:
    """Return the start position in `text`. A time without an offset from UTC is in UTC.

    Raises:
        ConfigError: the text has none of the forms.
    """
    if text in ("earliest", "latest"):
        return text  # type: ignore[return-value]  # the two literals
    try:
        if not text.startswith("{"):
            return parse_time_ms(text)
        offsets = _decode_offsets(text)
        if all(_PARTITION.fullmatch(partition) for partitions in offsets.values() for partition in partitions):
            return offsets
    except (ValueError, msgspec.DecodeError) as error:
        raise ConfigError(OPTION, text, REMEDY) from error
    raise ConfigError(OPTION, text, REMEDY)


def resolve(start: Start, read: Mapping[str, Collection[int]], broker: KafkaBroker) -> Offsets:
    """Return the offset at which `start` begins, for each partition in `read`, but at least the partition's first one.

    `read` and the result are by topic and partition.

    Raises:
        ConfigError: the offsets do not name a partition, or an offset is beyond the end of its partition.
        BrokerError, KafkaException: the broker did not answer in time.
    """
    places = [Place(topic, p) for topic, partitions in read.items() for p in partitions]
    bounds = broker.bounds(places)
    if missing := [place for place in places if place not in bounds]:
        raise unknown(missing[0])
    wanted = {place: found.end if start == "latest" else found.first for place, found in bounds.items()}
    if isinstance(start, dict):
        wanted = by_place(start)
        _require_offsets(wanted, bounds)
    elif isinstance(start, int):
        later = broker.offsets_at(places, start)
        wanted = {place: offset if offset >= 0 else bounds[place].end for place, offset in later.items()}
    return by_topic({place: max(found.first, wanted[place]) for place, found in bounds.items()})


def _require_offsets(found: Positions, bounds: Mapping[Place, Bounds]) -> None:
    """Require an offset for each partition, at most its end."""
    wrong = []
    for place, known in bounds.items():
        offset = found.get(place, -1)
        if offset < 0:
            wrong.append(f"it has no offset for {place.topic}, partition {place.partition}")
        elif offset > known.end:
            wrong.append(f"{place.topic}, partition {place.partition}, ends at {known.end}, before {offset}")
    if wrong:
        raise ConfigError(OPTION, str(by_topic(found)), f"{'; '.join(wrong)}; {REMEDY}")
