"""`tallystream verify`: reads the topics and passes their records to `check`, which compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.ledger import rows
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.times import parse_time_ms
from tallystream_aggregator.verify.advance import Advance
from tallystream_aggregator.verify.check import Check, Difference, Outcome
from tallystream_aggregator.verify.ledger import Ledger
from tallystream_aggregator.verify.published import (
    Moment,
    PublishedSums,
    by_partition,
    event,
    is_within,
    moment,
    refused_record,
)
from tallystream_aggregator.verify.replay import Replay
from tallystream_aggregator.verify.topics import TopicReader, newest, read_all, settled, split

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.verify.decode import RawRecord
    from tallystream_aggregator.verify.published import Ends, PartitionName

TIME_HINT = "give a time in UTC as in 2026-11-20T10:00"
OFFSETS_HINT = 'give the offsets at which the table began, as in {"metrics":{"0":123}}'

Found = TypeVar("Found")
Progress = Callable[[str, int, int], None]

_decode_offsets = json_decoder(dict[str, dict[int, int]])


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """The settings of `tallystream verify`.

    With `since`, a time in UTC, all sums are compared that were published from the epoch of that time on. `began` has
    the offsets at which the table began as JSON, if that was not the beginning of the topic.

    Raises:
        ConfigError: a setting can't be used.
    """

    bootstrap_servers: str
    topic_prefix: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    since: str | None = None
    began: str | None = None

    def __post_init__(self) -> None:
        _ = self.since_ms, self.began_at

    @property
    def since_ms(self) -> int | None:
        """`since` in epoch ms."""
        try:
            return None if self.since is None else parse_time_ms(self.since)
        except ValueError as error:
            raise ConfigError("--from", self.since, TIME_HINT) from error

    @property
    def began_at(self) -> Ends | None:
        """`began` by partition."""
        try:
            return None if self.began is None else by_partition(_decode_offsets(self.began))
        except msgspec.DecodeError as error:
            raise ConfigError("--began", self.began, OFFSETS_HINT) from error


class Positions:
    """The positions rows: up to where sums are published. `newest` is the moment of the newest sums when this was made.

    Raises:
        ConfigError: there is no positions row.
    """

    def __init__(self, reader: TopicReader, topics: Topics) -> None:
        self._reader = reader
        self._key = f"{topics.table}:0", b'["positions",0]'
        found = self._read()
        if found is None:
            raise ConfigError("--topic-prefix", topics.prefix, f"{topics.table} has no positions of an aggregator")
        self.tags, shards = found[1].tags, len(found[1].shards)
        if shards > 1:  # the combiner has the number after the last shard's
            self._key = f"{topics.shards}:{shards}", b'["positions",%d]' % shards
            found = self._read()
        if found is None:
            raise ConfigError("--topic-prefix", topics.prefix, f"{topics.agg} has no sum of all shards yet")
        self._offset, self.newest = found

    def _read(self) -> tuple[int, Moment] | None:
        row = newest(self._reader, *self._key)
        found = None if row is None else self._moment(row)
        return None if row is None or found is None else (row.offset, found)

    def ends(self) -> Ends:
        """Return the offsets that the newest sums include now."""
        found = self._read()
        return self.newest.ends if found is None else found[1].ends

    def moments(self) -> list[Moment] | None:
        """Return the moments that the topic has, in order, None for one shard."""
        if len(self.newest.shards) == 1:
            return None
        partition, key = self._key
        rows = self._reader.read(partition, *self._reader.bounds(split(partition)[0])[partition])
        by_offset = {row.offset: self._moment(row) for row in rows if row.key == key and row.value is not None}
        by_offset[self._offset] = self.newest  # compaction may have removed its row
        found = [one for _, one in sorted(by_offset.items()) if one is not None]
        # At its begin all shards are at the same positions, and so were those before a split.
        return [Moment((found[0].ends,) * len(self.newest.shards)), *found]

    def _moment(self, row: RawRecord) -> Moment | None:
        try:
            return moment(row.value)
        except ValueError as error:
            raise TallystreamError(f"{self._key[0]}, offset {row.offset}: {error}") from error


def run(settings: VerifySettings, *, progress: Progress = lambda _what, _done, _all: None) -> Outcome:
    """Replay `metrics` up to what was published when this began, and return the result of the comparison.

    `progress` is called after every thousand records with what is done with them, how many are done, and about how many
    there are. Nothing is written.

    Raises:
        ConfigError: the start of the table is unknown or its records were deleted, or there is nothing to compare.
        TallystreamError: the broker can't be reached, or records were deleted while they were read.
    """
    with clients.broker_errors(settings.bootstrap_servers):
        return _run(settings, progress)


def _run(settings: VerifySettings, progress: Progress) -> Outcome:
    topics = Topics(settings.topic_prefix)
    kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    check_login(kafka)
    reader = TopicReader(kafka)
    since_ms = settings.since_ms
    ledger = Ledger(rows(raw.value for raw in read_all(reader, reader.bounds(topics.ledger))), since_ms or 0)
    positions = Positions(reader, topics)
    end = positions.newest
    sums = PublishedSums(end.ends, None if since_ms is None else ledger.begin)
    for raw in read_all(reader, settled(reader, topics.agg), partial(progress, "sums read")):
        sums.add(raw.key, raw.value)
    if not sums.newest:
        raise ConfigError("--topic-prefix", settings.topic_prefix, f"{topics.agg} has no sum")
    letters = _counted(reader, topics.dead, refused_record, partial(progress, "dead letters read"))
    events = _counted(reader, topics.events, event, partial(progress, "events read"))
    ends = positions.ends()  # a step may have published sums since then
    beyond = [one for one in sums.later if not one.ends or not is_within(one.ends, ends)]
    moments = positions.moments()
    names = sorted({split(partition)[0] for partition in end.ends})
    ranges = reader.bounds(*names, committed=False)
    begin = _begin(settings, ledger.start, ranges, end.ends)
    replay = Replay(ledger.settings, positions.tags)
    # All partitions are read at the same time, and share the memory of one.
    kilobytes = max(8_192 // len(ranges), 256)
    limits = {"queued.max.messages.kbytes": str(kilobytes), "fetch.message.max.bytes": str(kilobytes << 10)}
    reader = TopicReader(limits | kafka)
    records = {
        partition: reader.read(partition, begin[partition], high, committed=False)
        for partition, (_, high) in ranges.items()
    }
    total = sum(max(high - begin[partition], 0) for partition, high in end.ends.items())
    advance = Advance(replay, begin, records, ledger.changes, lambda done: progress("records replayed", done, total))
    outcome = Check(advance, replay, letters=letters, events=events, tags=ledger.tags).run(sums, end, moments)
    outcome.unreadable = sums.unreadable
    outcome.differences += [
        Difference(one.identity, "offsets", one.fields.get("offsets"), "those of a step", one.ends) for one in beyond
    ]
    return outcome


def _counted(
    reader: TopicReader,
    topic: str,
    read: Callable[[bytes | None], Found | None],
    progress: Callable[[int, int], object],
) -> Counter[Found] | None:
    """Return how often each record of a topic is there, None if it is missing or retention deleted some of it."""
    ranges = settled(reader, topic)
    if not ranges or any(low > 0 for low, _ in ranges.values()):
        return None
    return Counter(found for raw in read_all(reader, ranges, progress) if (found := read(raw.value)) is not None)


def _begin(
    settings: VerifySettings,
    start: Ends | None,
    ranges: Mapping[PartitionName, tuple[int, int]],
    ends: Ends,
) -> Ends:
    """Return the offsets at which the table began, by the option or the ledger. It has read what is below `ends`.

    Raises:
        ConfigError: the offsets are unknown, or records after them were deleted.
    """
    given = settings.began_at
    if given is not None and not (given and given.keys() <= ranges.keys()):
        raise ConfigError("--began", settings.began, f"the table has the partitions {sorted(ranges)}: {OFFSETS_HINT}")
    began = dict.fromkeys(ranges, 0) | ((start or {}) if given is None else given)
    deleted = {partition: low for partition, (low, _) in ranges.items() if partition in ends and low > began[partition]}
    if deleted:
        raise ConfigError(
            "--began",
            settings.began or "earliest",
            f"records that the table has taken were deleted (partition -> first offset left: {deleted}), so its sums "
            "can't be replayed from nothing; a table that began at or after these offsets can be",
        )
    return began
