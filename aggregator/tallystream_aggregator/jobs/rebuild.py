"""`tallystream rebuild`: restores the table from `metrics-table`, as the initial state of a new checkpoint.

It writes only the initial state and the sharding. An aggregator that is started with the checkpoint loads the state,
reads `metrics` from its offsets, and publishes every sum again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING

import msgspec
from confluent_kafka import TopicPartition

from tallystream.errors import ConfigError
from tallystream_aggregator import sums
from tallystream_aggregator.initial_state import InitialState, initial_state_path, write_initial_state
from tallystream_aggregator.kafka import clients, ledger
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.ledger import MAX_EPOCH
from tallystream_aggregator.kafka.partition_bounds import bounds_of
from tallystream_aggregator.kafka.reader import read_topic
from tallystream_aggregator.kafka.topic_selection import Offsets, Selection, by_topic
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sharding import Sharding, require_sharding, write_sharding
from tallystream_aggregator.table.combiners import combine_shards
from tallystream_aggregator.table.combiners import pack as pack_combined
from tallystream_aggregator.table.restore.latest_rows import LatestRows
from tallystream_aggregator.table.restore.restore import Rebuilt, included_by_all, missing_records, restore
from tallystream_aggregator.table.state import pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from tallystream_aggregator.table.state import MetricId
    from tallystream_aggregator.table.sum_tags import SumTags

PROGRESS_EVERY = 100_000


@dataclass(frozen=True, slots=True)
class RebuildSettings:
    """Settings of `tallystream rebuild`. `checkpoint` is a new one; `accept_partial` accepts an incomplete table.

    `shards` is the new number of shards, `partitions` the number of Spark's partitions; None keeps the default.
    `sum_tags` are the tags that the sums have from now on; None keeps those that they have.
    """

    bootstrap_servers: str
    checkpoint: Path
    topic_prefix: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    accept_partial: bool = False
    shards: int | None = None
    partitions: int | None = None
    sum_tags: SumTags | None = None

    def __post_init__(self) -> None:
        require_sharding(self.shards, self.partitions, option="--partitions")


def run(settings: RebuildSettings, say: Callable[[str], object]) -> int:
    """Write the initial state, report what it contains and what it can't contain, and return 0.

    Raises:
        ConfigError: the checkpoint is in use, or the rebuilt table would lack something and that was not accepted.
        TallystreamError: there is nothing to rebuild from, or the broker can't be reached.
    """
    if any((settings.checkpoint / log).exists() for log in ("sources", "offsets", "commits")):
        raise ConfigError("--checkpoint", str(settings.checkpoint), "it is in use: name a new one, or move it away")
    topics = Topics(settings.topic_prefix)
    kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    check_login(kafka)
    with clients.broker_errors(settings.bootstrap_servers):
        latest, finished = read_finished(topics, kafka, say)
        epoch = ledger.highest_epoch(ledger.read_rows(topics.ledger, kafka)) or latest.epoch
        names = {f"{topic}:{p}": end for topic, ends in finished.items() for p, end in ends.items()}
        rebuilt = restore(
            latest, _summed(topics, kafka), shards=settings.shards, finished=names, sum_tags=settings.sum_tags
        )
        # The partitions of the last finished batch, or all of `metrics`.
        read = {topic: [int(p) for p in ends] for topic, ends in finished.items()}
        offsets = _next_offsets(
            rebuilt, read or Selection(topics.metrics).find(kafka), kafka, accept_partial=settings.accept_partial
        )
    if rebuilt.omitted and not settings.accept_partial:
        raise ConfigError(
            "--accept-partial",
            "no",
            f"the rows of {len(rebuilt.omitted)} lives were too large to be published, the first is "
            f"{list(rebuilt.omitted[0])}: their counts are lost; give the option to continue without them",
        )
    states = rebuilt.states
    lives = sum(len(known) for state in states for known in state.lives.values())
    metrics = len({metric for state in states for metric in state.metrics})
    retired = sum(forgotten_sums.lives for state in states for forgotten_sums in state.forgotten_sums.values())
    path = initial_state_path(settings.checkpoint)
    combined = [list(pack_combined(group)) for group in combine_shards(states)] if len(states) > 1 else []
    sharding = Sharding(len(states), settings.partitions or len(states), sum_tags=states[0].sum_tags)
    write_initial_state(path, InitialState([pack(state) for state in states], offsets, epoch, combined))
    write_sharding(settings.checkpoint, sharding)
    say(f"{lives} lives, {metrics} metrics, {retired} rows of forgotten lives; initial state {path}")
    say(f"{sharding.shards} shards on {sharding.partitions} partitions of Spark's state")
    say(f"tags of the sums: {sharding.sum_tags}")
    say(f"{topics.table} needs {sharding.shards} partitions, one for each shard")
    for topic, partitions in offsets.items():
        say(f"{topic} is read from {partitions} on")
    say("the first batch publishes all sums again")
    say(f"keep {path} as long as the checkpoint")
    say("not restored: events and dead letters that the last, unfinished batch had not written yet")
    say(f"start it with: tallystream aggregate --checkpoint {settings.checkpoint}")
    return 0


def read_finished(topics: Topics, kafka: Mapping[str, str], say: Callable[[str], object]) -> tuple[LatestRows, Offsets]:
    """Return the latest rows of `metrics-table`, and the offsets at which the last finished batch ended."""
    finished = finished_offsets(topics, kafka)  # First: an aggregator that still runs may finish batches meanwhile.
    return read_table(topics, kafka, say), finished


def read_table(topics: Topics, kafka: Mapping[str, str], say: Callable[[str], object]) -> LatestRows:
    """Return the latest rows of `metrics-table`, without records of an epoch that no writer has taken.

    `say` is called with the progress.
    """
    records = read_topic(topics.table, kafka)
    first = list(islice(records, 1))  # fixes the end of the topic, so the ledger has the epoch of every record
    taken = ledger.highest_epoch(ledger.read_rows(topics.ledger, kafka))
    latest = LatestRows(MAX_EPOCH if taken is None else taken)
    for number, record in enumerate(chain(first, records), 1):
        if record.key is not None:
            latest.add(record.key, record.value, record.deleted_by, record.partition)
        if number % PROGRESS_EVERY == 0:
            say(f"{number:,} records of {topics.table} read")
    if latest.refused:
        say(f"{latest.refused:,} records of {topics.table} are skipped: no aggregator has taken their epoch")
    return latest


def _summed(topics: Topics, kafka: Mapping[str, str]) -> Iterator[MetricId]:
    """Yield the metrics that have a sum on `metrics-agg`."""
    for record in read_topic(topics.agg, kafka):
        if record.value is None:
            continue
        try:
            row = sums.decode(record.value)
        except msgspec.DecodeError:
            continue  # not written by a table
        yield row.app, row.name, row.type, tuple(sorted(row.tags.items()))


def finished_offsets(topics: Topics, kafka: Mapping[str, str]) -> Offsets:
    """Read the ledger, and return the next offsets after the last finished batch (kafka.ledger.finished)."""
    return ledger.finished(ledger.read_rows(topics.ledger, kafka))


def _next_offsets(
    rebuilt: Rebuilt, read: Mapping[str, Iterable[int]], kafka: Mapping[str, str], *, accept_partial: bool
) -> Offsets:
    """Return the next offset of each partition of `read`: after what the table includes, or the first record.

    Raises:
        ConfigError: records were deleted that the table does not include, or a topic was created again.
    """
    with clients.metadata_consumer(kafka) as consumer:
        bounds = {
            (topic, p): bounds_of(consumer, TopicPartition(topic, p), timeout=clients.TIMEOUT_S)
            for topic, partitions in read.items()
            for p in sorted(partitions)
        }
    by_all = included_by_all(rebuilt.states)
    included = {(topic, p): by_all.get(f"{topic}:{p}", -1) for topic, p in bounds}
    for (topic, p), (_, high) in bounds.items():
        if included[topic, p] >= high:
            raise ConfigError(
                "topic",
                topic,
                f"partition {p} ends before what the table includes (offset {included[topic, p]}), so the topic was "
                "created again: begin a new table with tallystream aggregate --from earliest",
            )
    gaps = missing_records(by_all, {f"{topic}:{p}": low for (topic, p), (low, _) in bounds.items()})
    if gaps and not accept_partial:
        raise ConfigError(
            "--accept-partial",
            "no",
            f"records that the table does not include were deleted (partition → how many: {gaps}); their counts "
            "return with the next record of their life, but ended lives may lack some: give the option to continue",
        )
    return by_topic({place: max(included[place] + 1, low) for place, (low, _) in bounds.items()})
