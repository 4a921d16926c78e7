"""The settings of `tallystream aggregate`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import ConfigError
from tallystream_aggregator.health import HealthSettings
from tallystream_aggregator.kafka.topic_selection import Offsets, Selection
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.table.limits import MAX_SHARDS, TableSettings
from tallystream_aggregator.times import HOUR_MS, parse_time_ms

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_aggregator.kafka.clients import Cluster
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_aggregator.table.sum_tags import SumTags

MIN_TABLE_BYTES = 10 << 20

LOW = "low"
LOW_SPACING_S = 0.02
MIN_LATENCY_MS, MAX_LATENCY_MS = 200, 60_000
MIN_EPOCH_S, MAX_EPOCH_S = 1.0, 100.0
"""The limits of an epoch. Spark's network timeout is 120 s."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000}
_MEMORY = re.compile(r"(\d{1,9})([kmgt]?)b?", re.IGNORECASE)
_MEMORY_BITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_latency(text: str) -> float:
    """Return the seconds between the beginnings of two steps for a latency: a duration such as `500ms`, or `low`.

    They are half of the duration, so that a record waits for at most that, and 20 ms for `low`.

    Raises:
        ConfigError: `text` is neither, or the duration is below 200 ms or above 1 minute.
    """
    if text == LOW:
        return LOW_SPACING_S
    match = _DURATION.fullmatch(text)
    latency_ms = float(match[1]) * _UNIT_MS[match[2]] if match else 0
    if not MIN_LATENCY_MS <= latency_ms <= MAX_LATENCY_MS:
        raise ConfigError("--latency", text, "give a duration from 200ms to 1m, as in 500ms or 2s, or low")
    return latency_ms / 2000


def parse_memory(option: str, text: str) -> int:
    """Return an amount of memory, as in `800m` or `2g`, in bytes.

    Raises:
        ConfigError: `text` is none.
    """
    found = _MEMORY.fullmatch(text.strip())
    if found is None:
        raise ConfigError(option, text, "give an amount of memory, as in 800m or 2g")
    return int(found[1]) << _MEMORY_BITS[found[2].lower()]


START_REMEDY = 'give earliest, latest, a time in UTC as in 2026-11-20T10:00, or offsets as in {"metrics":{"0":123}}'
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
        raise ConfigError("--from", text, START_REMEDY) from error
    raise ConfigError("--from", text, START_REMEDY)


@dataclass(frozen=True, slots=True)
class AggregateSettings:
    """The settings of `tallystream aggregate`.

    `checkpoint` is Spark's directory with the state of the table. `latency` is the target for the time until a record
    is in a sum (`parse_latency`), `epoch_s` the longest time between two checkpoints in seconds, and `max_rate` the
    most records that each shard reads in a second, None for no limit. `start` is where a new table begins
    (`parse_start`), None for earliest if nothing before that was deleted. With `catch_up`, it ends when all records
    that exist at its start are summed. `ready_file` is created when it is ready. With `skip_lost`, it continues when
    unread records were deleted. `topic_pattern` and `partitions` select what is read instead of all of `metrics`,
    beside the OTLP topics of `table` (kafka.topic_selection). `shards` and `sum_tags` are the number of shards and the
    tags of the sums of a new table; None takes those of the table, or for a new one 1 shard and all tags. `master` is
    Spark's, None for this machine. `store` is what it ships sums and events to, as `tallystream ship` does; with `rows`
    also the values of each instance.
    """

    cluster: Cluster
    checkpoint: Path
    topic_pattern: str | None = None
    partitions: tuple[int, ...] | None = None
    latency: str = "1s"
    epoch_s: float = 60.0
    max_rate: int | None = None
    start: str | None = None
    catch_up: bool = False
    skip_lost: bool = False
    table: TableSettings = field(default_factory=TableSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    ready_file: Path | None = None
    master: str | None = None
    shards: int | None = None
    sum_tags: SumTags | None = None
    driver_memory: str = "1g"
    store: StoreSettings | None = None
    rows: bool = False

    def __post_init__(self) -> None:
        if self.table.max_table_bytes < MIN_TABLE_BYTES:
            raise ConfigError("--table-memory", self.table.max_table_bytes, "give 10m or more")
        parse_latency(self.latency)
        if not MIN_EPOCH_S <= self.epoch_s <= MAX_EPOCH_S:
            raise ConfigError("--epoch", self.epoch_s, f"give {MIN_EPOCH_S:g} to {MAX_EPOCH_S:g} seconds")
        if self.table.forget_after_ms < 5 * 24 * HOUR_MS:
            days = self.table.forget_after_ms / (24 * HOUR_MS)
            raise ConfigError("--forget-after-days", days, "give 5 or more: a broker's clock may jump by days")
        if self.max_rate is not None and self.max_rate < 1:
            raise ConfigError("--max-rate", self.max_rate, "give a whole number above zero, or leave it out")
        if self.shards is not None and not 1 <= self.shards <= MAX_SHARDS:
            raise ConfigError("--shards", self.shards, f"give a whole number from 1 to {MAX_SHARDS}")
        parse_start(self.start or "earliest")
        _ = self.selection

    @property
    def topics(self) -> Topics:
        """The names of the topics."""
        return Topics(self.cluster.topic_prefix, self.table.otlp_topics)

    @property
    def spacing_s(self) -> float:
        """The time between the beginnings of two steps."""
        return parse_latency(self.latency)

    @property
    def selection(self) -> Selection:
        """The selection of topics and partitions that the table reads."""
        return Selection(self.topics.metrics, self.topic_pattern, self.partitions, self.table.otlp_topics)
