"""The settings of `tallystream aggregate`, and the start times of batches for the latency that `--latency` sets."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from tallystream.errors import ConfigError
from tallystream_aggregator.health import HealthSettings
from tallystream_aggregator.kafka.start_position import parse_start
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sharding import require_sharding
from tallystream_aggregator.spark.kafka_options import Fetch
from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.times import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tallystream_aggregator.spark.query.modes import Mode
    from tallystream_aggregator.table.sum_tags import SumTags

GROUP = "tallystream-aggregator"
"""The consumer group of the query's committed offsets, without the prefix of the topics, which it has, too."""


LOW = "low"
LOW_INTERVAL_MS = 100
MAX_INTERVAL_MS = 250
MIN_AIM_MS, MAX_AIM_MS = 200, 60_000
LOW_SPACING_S = 0.02
MIN_EPOCH_S, MAX_EPOCH_S = 1.0, 100.0
"""The limits of an epoch. Spark's network timeout is 120 s."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000}


class Pacing(NamedTuple):
    """Spark checks for records every `interval_ms`.

    A check that finds records starts a batch if `delay_ms` have passed since the start of the last batch, or if the
    records fill a batch.
    """

    interval_ms: int
    delay_ms: int

    def source(self, max_records: int) -> dict[str, str]:
        """Return the options of Spark's Kafka source. A batch is full with `max_records` records."""
        if not self.delay_ms:
            return {}
        return {"minOffsetsPerTrigger": str(max_records), "maxTriggerDelay": f"{self.delay_ms}ms"}


def parse_latency(text: str) -> Pacing:
    """Return the pacing for a latency: a duration such as `500ms`, `1s` or `1m`, or `low`.

    With a duration, a record waits for at most two thirds of it until a batch starts, or until the running batch ends.
    The last third is for its batch. With `low`, a batch starts as soon as there are records.

    Raises:
        ConfigError: `text` is neither, or the duration is below 200 ms or above 1 minute.
    """
    if text == LOW:
        return Pacing(LOW_INTERVAL_MS, 0)
    aim_ms = _milliseconds(text)
    if not MIN_AIM_MS <= aim_ms <= MAX_AIM_MS:
        raise ConfigError("--latency", text, "give a duration from 200ms to 1m, as in 500ms or 2s, or low")
    wait_ms = aim_ms * 2 / 3
    polls = max(2, math.ceil(wait_ms / MAX_INTERVAL_MS))
    interval_ms = int(wait_ms / polls)
    # The delay ends between the last two checks, so the pacing stays the same if a check is some milliseconds off.
    return Pacing(interval_ms, int((polls - 0.5) * interval_ms))


def _milliseconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _UNIT_MS[match[2]] if match else 0


@dataclass(frozen=True, slots=True)
class AggregateSettings:
    """The settings of `tallystream aggregate`.

    `checkpoint` is Spark's directory with offsets, commits and the table. `kafka` are librdkafka's options.
    `max_records_per_trigger` limits a live batch; the first batch in catch-up may have 40 times as many records.
    `latency` is the target for the time until a record is in a sum (`parse_latency`). `epoch_s` is the longest time
    between two checkpoints of the loop, in seconds. `mode` is the mode; None
    chooses it by the lag (spark.query.modes). `accept_partial` lets a new table begin in the middle of the topic. With
    `standby`, it waits while another aggregator has the lease. `ready_file` is created when the first trigger has run.
    `start` is where a new table begins (kafka.start_position); None is earliest, and fails if the ledger has batches of
    an earlier table. With `catch_up`, the query ends when all records that exist at its start are summed.
    `on_data_loss` tells whether the query fails or continues when unread records were deleted. `topic_pattern` and
    `partitions` select what is read instead of all of `metrics`, beside the OTLP topics of `table`
    (kafka.topic_selection). `shards` and
    `state_partitions` are the sharding of a new table (sharding). None takes that of the checkpoint, or for a new
    one 1 shard, and as many partitions as shards. `sum_tags` are the tags of the sums of a new table; None takes those
    of the checkpoint, or for a new one all tags.
    """

    bootstrap_servers: str
    checkpoint: Path
    topic_prefix: str = ""
    topic_pattern: str | None = None
    partitions: tuple[int, ...] | None = None
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    fetch: Fetch = field(default_factory=Fetch)
    max_records_per_trigger: int = 50_000
    latency: str = "1s"
    epoch_s: float = 60.0
    mode: Mode | None = None
    start: str | None = None
    accept_partial: bool = False
    standby: bool = False
    catch_up: bool = False
    on_data_loss: Literal["fail", "continue"] = "fail"
    table: TableSettings = field(default_factory=TableSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    ready_file: Path | None = None
    master: str = "local[2,4]"
    shards: int | None = None
    state_partitions: int | None = None
    sum_tags: SumTags | None = None
    driver_memory: str = "1g"

    def __post_init__(self) -> None:
        if self.max_records_per_trigger < 1:
            raise ConfigError("--max-records", self.max_records_per_trigger, "give a whole number above zero")
        if self.table.max_app_metrics < 1:
            raise ConfigError("--max-app-metrics", self.table.max_app_metrics, "give a whole number above zero")
        parse_latency(self.latency)
        if not MIN_EPOCH_S <= self.epoch_s <= MAX_EPOCH_S:
            raise ConfigError("--epoch", self.epoch_s, f"give {MIN_EPOCH_S:g} to {MAX_EPOCH_S:g} seconds")
        if self.table.forget_after_ms < 5 * 24 * HOUR_MS:
            days = self.table.forget_after_ms / (24 * HOUR_MS)
            raise ConfigError("--forget-after-days", days, "give 5 or more: a broker's clock may jump by days")
        require_sharding(self.shards, self.state_partitions, option="--state-partitions")
        if self.on_data_loss not in ("fail", "continue"):
            raise ConfigError("--on-data-loss", self.on_data_loss, "give fail or continue")
        parse_start(self.start or "earliest")
        Selection("metrics", self.topic_pattern, self.partitions, self.table.otlp_topics)
        if not self.bootstrap_servers:
            raise ConfigError("--bootstrap-servers", self.bootstrap_servers, "name a broker, as in localhost:9092")

    @property
    def pacing(self) -> Pacing:
        """The pacing of batches for `latency`."""
        return parse_latency(self.latency)

    @property
    def topics(self) -> Topics:
        """The names of the topics."""
        return Topics(self.topic_prefix, self.table.otlp_topics)

    @property
    def spacing_s(self) -> float:
        """The time between the beginnings of two steps of the loop: half of `latency`, or 20 ms with `low`."""
        return LOW_SPACING_S if self.latency == LOW else _milliseconds(self.latency) / 2000

    def selection(self, topics: Topics) -> Selection:
        """Return the selection of topics and partitions that the table reads."""
        return Selection(topics.metrics, self.topic_pattern, self.partitions, self.table.otlp_topics)
