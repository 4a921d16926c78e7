"""The start position of a new table: earliest, latest, or a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tallystream.errors import ConfigError
from tallystream_aggregator.stream.broker import Place, unknown
from tallystream_aggregator.stream.positions import by_topic
from tallystream_aggregator.times import parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tallystream_aggregator.kafka.topic_selection import Offsets
    from tallystream_aggregator.stream.kafka.broker import KafkaBroker

Start = Literal["earliest", "latest"] | int
"""A number is a time in epoch ms. It stands for the first record appended at or after it."""


def parse_start(text: str) -> Start:
    """Return the start position in `text`. A time without an offset from UTC is in UTC.

    Raises:
        ConfigError: the text has none of the forms.
    """
    if text in ("earliest", "latest"):
        return text  # type: ignore[return-value]  # the two literals
    try:
        return parse_time_ms(text)
    except ValueError as error:
        remedy = "give earliest, latest, or a time in UTC, as in 2026-11-20T10:00"
        raise ConfigError("--from", text, remedy) from error


def resolve(start: Start, read: Mapping[str, Collection[int]], broker: KafkaBroker) -> Offsets:
    """Return the offset at which `start` begins, for each partition in `read`, but at least the partition's first one.

    `read` and the result are by topic and partition.

    Raises:
        BrokerError, KafkaException: the broker did not answer in time.
    """
    places = [Place(topic, p) for topic, partitions in read.items() for p in partitions]
    bounds = broker.bounds(places)
    if missing := [place for place in places if place not in bounds]:
        raise unknown(missing[0])
    wanted = {place: found.end if start == "latest" else found.first for place, found in bounds.items()}
    if isinstance(start, int):
        later = broker.offsets_at(places, start)
        wanted = {place: offset if offset >= 0 else bounds[place].end for place, offset in later.items()}
    return by_topic({place: max(found.first, wanted[place]) for place, found in bounds.items()})
