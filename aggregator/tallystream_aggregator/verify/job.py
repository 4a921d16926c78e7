"""`tallystream verify`: reads the topics and passes their records to `check`, which compares."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.ledger import rows
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.stream.broker import Bounds, OffsetAndEpoch, Place, bounds_of, lost_offsets
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.stream.reading import backwards, read_range
from tallystream_aggregator.stream.truncation import truncations
from tallystream_aggregator.verify.advance import PROGRESS_EVERY, Advance, Change
from tallystream_aggregator.verify.check import Difference, Outcome, compare
from tallystream_aggregator.verify.lives import Settings
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tallystream_aggregator.kafka.clients import Cluster
    from tallystream_aggregator.kafka.ledger import LedgerRow
    from tallystream_aggregator.stream.broker import Broker, RawRecord
    from tallystream_aggregator.verify.published import Ends, PartitionName

_GROUP = "tallystream-verify"

MAX_WAIT_S = 60.0
"""The longest wait for the end of a transaction, in seconds."""

PAUSE_S = 0.2

Found = TypeVar("Found")
Progress = Callable[[str, int, int], None]


class Positions:
    """The positions rows: up to where sums are published.

    `newest` is the moment of the newest sums when this was made. `first` is the row of the first shard.

    Raises:
        ConfigError: there is no positions row.
    """

    def __init__(self, broker: Broker, topics: Topics) -> None:
        self._broker = broker
        self._place, self._key = Place(topics.table, 0), b'["positions",0]'
        found = self.read()
        if found is None:
            raise ConfigError("--topic-prefix", topics.prefix, f"{topics.table} has no positions of an aggregator")
        self.first, shards = found, len(found.shards)
        if shards > 1:  # the combiner has the number after the last shard's
            self._place, self._key = Place(topics.shards, shards), b'["positions",%d]' % shards
            found = self.read()
        if found is None:
            raise ConfigError("--topic-prefix", topics.prefix, f"{topics.agg} has no sum of all shards yet")
        self.newest = found

    def read(self) -> Moment | None:
        """Return the moment of the newest sums now."""
        value = newest(self._broker, self._place, self._key)
        try:
            return None if value is None else moment(value)
        except ValueError as error:
            raise TallystreamError(f"{self._place}: {error}") from error


def run(cluster: Cluster, *, progress: Progress = lambda _what, _done, _all: None) -> Outcome:
    """Replay `metrics` up to what was published when this began, and return the result of the comparison.

    `progress` is called after every thousand records with what is done with them, how many are done, and about how many
    there are. Nothing is written.

    Raises:
        ConfigError: there is nothing to compare.
        TallystreamError: records that the table has read were deleted, or the broker can't be reached.
    """
    with clients.broker_errors(cluster.bootstrap_servers):
        return _run(cluster, progress)


def changes_of(rows: Iterable[LedgerRow]) -> list[Change]:
    """Return the changes of the settings of the table that began last. The rows are given in their order."""
    changes: list[Change] = []
    for row in rows:
        if row.start:
            changes.clear()
        ends = tuple(map(by_partition, row.shard_ends or [row.start or row.end]))
        change = Change(ends, row.shards, row.forget_after_ms, row.max_table_bytes, tuple(sorted(row.otlp)))
        if not changes or changes[-1][1:] != change[1:]:  # most rows are of epochs, and change nothing
            changes.append(change)
    return changes


def _is_reached(change: Change, end: Moment) -> bool:
    """Tell whether all shards had come to a change at this moment."""
    each = end.shards if len(end.shards) == len(change.ends) else [end.ends] * len(change.ends)
    return all(map(is_within, change.ends, each))


def _run(cluster: Cluster, progress: Progress) -> Outcome:
    topics = Topics(cluster.topic_prefix)
    kafka = cluster.options
    check_login(kafka)
    broker = KafkaBroker(kafka, Selection(topics.metrics), _GROUP)
    positions = Positions(broker, topics)
    place = Place(topics.ledger, 0)
    changes = changes_of(rows(value for *_, value in read_range(broker, place, bounds_of(broker, place))))
    end = positions.newest
    sums = PublishedSums(end.ends)
    for _, _, key, value in committed(broker, Place(topics.agg, 0), partial(progress, "sums read")):
        sums.add(key, value)
    if not sums.newest:
        raise ConfigError("--topic-prefix", cluster.topic_prefix, f"{topics.agg} has no sum")
    letters = _counted(broker, topics.dead, refused_record, partial(progress, "dead letters read"))
    events = _counted(broker, topics.events, event, partial(progress, "events read"))
    now = positions.read() or end  # a step may have published sums since then
    begin = positions.first.begin
    total = sum(max(offset - begin.get(partition, 0), 0) for partition, offset in end.ends.items())
    advance = Advance(
        Replay(Settings(tags=positions.first.tags)),
        begin,
        _records(kafka, topics, positions.first, end.ends),
        lambda done: progress("records replayed", done, total),
    )
    for change in changes:
        if _is_reached(change, end):
            advance.change(change)
    advance.finish(end.shards)
    outcome = compare(advance, sums, letters=letters, events=events)
    outcome.differences += [
        Difference(one.identity, "offsets", one.fields.get("offsets"), "those of a step", one.ends)
        for one in sums.later
        if not one.ends or not is_within(one.ends, now.ends)
    ]
    return outcome


def _records(
    kafka: Mapping[str, str], topics: Topics, first: Moment, ends: Ends
) -> dict[PartitionName, Iterator[RawRecord]]:
    """Return the records of each partition that the table has read, from where it began.

    Raises:
        TallystreamError: some of them were deleted, or lost.
    """
    begin = first.begin
    # All partitions are read at the same time, and share the memory of one.
    kilobytes = max(8_192 // len(ends), 256)
    limits = {"queued.max.messages.kbytes": str(kilobytes), "fetch.message.max.bytes": str(kilobytes << 10)}
    broker = KafkaBroker(limits | dict(kafka), Selection(topics.metrics), _GROUP)
    places = [Place(topic, int(number)) for topic, _, number in (name.rpartition(":") for name in ends)]
    found = broker.bounds(places)
    deleted = {str(place): first for place, (first, *_) in found.items() if first > begin.get(str(place), 0)}
    if deleted:
        raise TallystreamError(
            f"records that the table has read were deleted (partition -> first offset left: {deleted}), so its sums "
            "can't be replayed from nothing; to verify for longer, raise retention.ms of the topic, and begin a new "
            "table."
        )
    lost = {place: one.end for place, one in found.items() if one.end < ends[str(place)]}
    known = {str(place): place for place in found}
    last = {known[name]: OffsetAndEpoch(*one) for name, one in first.last_records.items() if name in known}
    lost |= truncations(broker, last)
    if lost:
        read = {place: max(ends[str(place)], last[place].offset + 1 if place in last else 0) for place in lost}
        what = " and ".join(f"{place} {lost_offsets(at, read[place])}" for place, at in lost.items())
        raise TallystreamError(f"{what} after they were read, so the sums have records that can't be replayed.")
    return {
        str(place): read_range(broker, place, Bounds(begin.get(str(place), 0), one.end, one.end), committed=False)
        for place, one in found.items()
    }


def _counted(
    broker: Broker,
    topic: str,
    read: Callable[[bytes | None], Found | None],
    progress: Callable[[int, int], object],
) -> Counter[Found] | None:
    """Return how often each record of a topic is there, None if it is missing or retention deleted some of it."""
    place = Place(topic, 0)
    bounds = broker.bounds([place]).get(place)
    if bounds is None or bounds.first > 0:
        return None
    records = committed(broker, place, progress)
    return Counter(found for *_, value in records if (found := read(value)) is not None)


def committed(broker: Broker, place: Place, progress: Callable[[int, int], object]) -> Iterator[RawRecord]:
    """Yield every committed record of a partition, when all transactions that are open there now have ended.

    `progress` is called after every `PROGRESS_EVERY` records with their number, and about how many there are.

    Raises:
        BrokerError: the broker sends nothing, or records were deleted before they were read.
        TallystreamError: as `settled`.
    """
    bounds = settled(broker, place)
    if bounds is None:
        return
    for number, record in enumerate(read_range(broker, place, bounds), 1):
        yield record
        if number % PROGRESS_EVERY == 0:
            progress(number, bounds.stable - bounds.first)


def settled(broker: Broker, place: Place) -> Bounds | None:
    """Return the bounds of a partition when all transactions that are open there now have ended; None without it.

    Until then a reader does not see what was committed after the first record of an open transaction.

    Raises:
        TallystreamError: a transaction does not end, or the broker did not answer.
    """
    now = found = broker.bounds([place]).get(place)
    deadline = time.monotonic() + MAX_WAIT_S
    while now is not None and found is not None and found.stable < now.end:
        if time.monotonic() > deadline:
            raise TallystreamError(f"{place}: a transaction has been open for {MAX_WAIT_S:g} s.")
        time.sleep(PAUSE_S)
        found = broker.bounds([place]).get(place)
    return found


def newest(broker: Broker, place: Place, key: bytes) -> bytes | None:
    """Return the newest value of a key when all transactions that are open now have ended, None if there is none.

    Raises:
        TallystreamError: as `settled` and `committed`.
    """
    bounds = settled(broker, place)
    for records in () if bounds is None else backwards(broker, place, bounds):
        for _, _, found, value in reversed(records):
            if found == key and value is not None:
                return value
    return None
