"""Who the loops of a table are, and the positions row: how far the last step of a loop got, and who wrote it.

It is the last record of each transaction of the shard, in the shard's partition of `metrics-table`. Only the shard's
transactional ID writes there, so the newest committed row says what is published.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka.topic_selection import Offsets
from tallystream_aggregator.stream.broker import BrokerError, FencedError, OffsetAndEpoch, Place, Positions, bounds_of
from tallystream_aggregator.stream.reading import backwards
from tallystream_aggregator.table.sum_tags import SumTags

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.stream.broker import Bounds, Broker, RawRecord
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.state import State

T = TypeVar("T")

LastRecords = dict[Place, OffsetAndEpoch]
"""The last record of each partition that a table includes, if it is known."""

Claim = tuple[int, int]
"""(generation of the driver, attempt) of a task. A task that finds a higher one ends for good."""


class Layout(NamedTuple):
    """The number of shards of a table, and the tags of its sums. Only `stream.reshard` changes them."""

    shards: int = 1
    sum_tags: SumTags = SumTags()

    def __str__(self) -> str:
        return f"{self.shards} shard{'s' if self.shards > 1 else ''}, sums with {self.sum_tags}"


class LoopId(NamedTuple):
    """Who a loop is: its number among the shards of a table. The combiner of several shards comes after the last."""

    topics: Topics
    number: int = 0
    shards: int = 1

    @property
    def transactional_id(self) -> str:
        """The transactional ID of its writers."""
        return f"{self.topics.prefix}tallystream-aggregator-{self.number}"

    @property
    def rows(self) -> Place:
        """The partition of its positions row, and of a shard's rows. Nobody else writes it."""
        return Place(self.topics.table if self.number < self.shards else self.topics.shards, self.number)

    @property
    def sums(self) -> Place:
        """The partition with its sums, or with the partial sums of one of several shards. Nobody else writes it."""
        partial = self.number < self.shards > 1
        return Place(self.topics.shards, self.number) if partial else Place(self.topics.agg, 0)

    @property
    def letters(self) -> list[Place]:
        """The partitions with dead letters and events. All shards write them."""
        return [Place(self.topics.dead, 0), Place(self.topics.events, 0)]

    @property
    def own(self) -> list[Place]:
        """The partitions that no other loop writes in transactions."""
        return [self.rows, self.sums, *(self.letters if self.shards == 1 else [])]


def loops_of(topics: Topics, shards: int) -> list[LoopId]:
    """Return the loops of a table with so many shards, that of the combiner last if there are several."""
    return [LoopId(topics, number, shards) for number in range(shards + (shards > 1))]


class PositionsRow(msgspec.Struct, kw_only=True):
    """The positions of `shard` after its step with the number `step`: topic → partition → the next offset to read.

    The table has `of` shards, and its sums have the tags `sum_tags`. The step `replay_since` has published its rows. No
    replay begins before it: since then the table has forgotten lives after `forget_after_ms`, has read the topics
    `otlp` as OTLP metrics, and was never full. The combiner has none of these. Rows of release 0.1 have no `otlp`, and
    no `max_table_bytes`, the limit of the table's memory.

    `topics` has the ID of each topic, and that of `metrics-table`. `records`, `dead` and `stale` count what the table
    has read since it began: a replay to these positions finds the same numbers. The combiner has the number after the
    last shard's, positions in `metrics-shards`, and in `shards` the positions of each shard at that moment. `begin` are
    the positions at which the shard began, without those that are 0. `last_records` are the last ones before each
    position, if they are known: the offset, and the epoch of the leader. A row is `restoring` if it is only the claim
    of a task: the task makes its table again then.
    """

    v: int = 1
    shard: int
    of: int = 1
    sum_tags: SumTags = SumTags()
    claim: Claim
    restoring: bool = False
    step: int
    positions: Offsets
    topics: dict[str, str]
    shards: dict[str, Offsets] = {}
    begin: Offsets = {}
    last_records: dict[str, dict[str, OffsetAndEpoch]] = {}
    records: int = 0
    dead: int = 0
    stale: int = 0
    replay_since: int = 0
    forget_after_ms: int = 0
    max_table_bytes: int | None = None
    otlp: tuple[str, ...] | None = None

    def settings(self, now: TableSettings) -> TableSettings:
        """Return the settings of the table at the step. What the row lacks is as in those of now."""
        return replace(
            now,
            forget_after_ms=self.forget_after_ms,
            max_table_bytes=self.max_table_bytes or now.max_table_bytes,
            otlp_topics=now.otlp_topics if self.otlp is None else self.otlp,
        )

    @property
    def layout(self) -> Layout:
        """The layout of the table."""
        return Layout(self.of, self.sum_tags)


_encode = msgspec.json.Encoder().encode
_decode = json_decoder(PositionsRow)


def row_of(
    state: State,
    *,
    claim: Claim,
    step: int,
    topics: dict[str, str],
    begin: Offsets,
    last_records: LastRecords,
    settings: TableSettings,
    replay_since: int,
) -> PositionsRow:
    """Return the positions row of a table."""
    return PositionsRow(
        shard=state.shard,
        of=state.shards,
        sum_tags=state.sum_tags,
        claim=claim,
        step=step,
        positions=by_topic(positions_of(state)),
        topics=topics,
        begin=begin,
        last_records=by_topic(last_records),
        records=state.records,
        dead=state.dead,
        stale=state.stale,
        replay_since=replay_since,
        forget_after_ms=settings.forget_after_ms,
        max_table_bytes=settings.max_table_bytes,
        otlp=settings.otlp_topics,
    )


def positions_of(state: State) -> Positions:
    """Return the positions of a table."""
    found: Positions = {}
    for name, offset in state.offsets.items():
        topic, _, partition = name.rpartition(":")
        found[Place(topic, int(partition))] = offset + 1
    return found


def key_of(shard: int) -> bytes:
    """Return the key of a shard's positions row."""
    return _encode(["positions", shard])


def encode(row: PositionsRow) -> bytes:
    """Return the value of a positions row."""
    return _encode(row)


def require_highest(claim: Claim, published: PositionsRow | None) -> None:
    """Require that the published positions row, if there is one, has no higher claim.

    Raises:
        FencedError: it has one. Whoever made this claim ends for good, and fences nobody.
    """
    if published is not None and published.claim > claim:
        raise FencedError(
            f"shard {published.shard}: a newer task has it, with the claim {published.claim} (generation, attempt); "
            f"this one has {claim}."
        )


def by_topic(positions: Mapping[Place, T]) -> dict[str, dict[str, T]]:
    """Return positions, or last records, in the form of a row."""
    found: dict[str, dict[str, T]] = {}
    for (topic, partition), position in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = position
    return found


def by_place(positions: Mapping[str, Mapping[str, T]]) -> dict[Place, T]:
    """Return positions, or last records, of a row by partition."""
    return {Place(topic, int(p)): position for topic, found in positions.items() for p, position in found.items()}


def lowest(of_shards: Iterable[Positions]) -> Positions:
    """Return the positions that all shards have reached, without partitions that some have not begun to read."""
    each = list(of_shards)
    known = sorted(set().union(*each))
    return {place: min(one[place] for one in each) for place in known if all(place in one for one in each)}


def summed(row: PositionsRow) -> Positions:
    """Return the positions that the sums include, by the row of the only shard, or of the combiner.

    Before all shards have begun there are none.
    """
    if len(row.shards) < row.of > 1:
        return {}
    return lowest(map(by_place, row.shards.values() or [row.positions]))


class HangingTransactionError(BrokerError):
    """A transaction is open in a partition that only one transactional ID writes, and its newest writer has none."""


def require_visible(broker: Broker, places: Collection[Place]) -> None:
    """Require that no transaction is open in these partitions, which only one transactional ID writes.

    Call it after `Broker.writer` only: what an earlier writer left open is ended then.

    Raises:
        HangingTransactionError: a newer writer has begun a transaction, or Kafka has left one open.
        BrokerError: the broker did not answer in time.
    """
    for (topic, partition), bounds in broker.bounds(places).items():
        if bounds.stable < bounds.end:
            raise HangingTransactionError(
                f"topic {topic}, partition {partition}: a transaction is open from offset {bounds.stable} on, and no "
                "writer of the table can end it: kafka-transactions.sh --bootstrap-server BROKER abort "
                f"--topic {topic} --partition {partition} --start-offset {bounds.stable} ends it."
            )


def newest_row(broker: Broker, place: Place, shard: int) -> PositionsRow | None:
    """Return the newest committed positions row of a shard in its partition, or None if it has none.

    Call it after `require_visible` only. If a newer writer has committed one meanwhile, it has fenced the caller.

    Raises:
        BrokerError: the broker did not answer in time, or does not know the partition.
    """
    bounds = bounds_of(broker, place)
    found = _search(broker, place, shard, bounds)
    if found is None and broker.bounds([place]).get(place, bounds).end != bounds.end:
        # Another writer has the shard. Compaction may have removed the row that was the newest a moment ago.
        raise BrokerError(f"topic {place.topic}, partition {place.partition}: it grows while it is searched.")
    return found


def visible_row(broker: Broker, place: Place, shard: int) -> PositionsRow | None:
    """Return the newest positions row of a shard that is visible now, or None. Nobody is fenced for it.

    Another writer may be about to commit a newer one.

    Raises:
        BrokerError: the broker did not answer in time.
    """
    bounds = broker.bounds([place]).get(place)
    return None if bounds is None else _search(broker, place, shard, bounds)


def _search(broker: Broker, place: Place, shard: int, bounds: Bounds) -> PositionsRow | None:
    key = key_of(shard)
    rows = (newest_in(records, key) for records in backwards(broker, place, bounds))
    return next((row for row in rows if row is not None), None)


def newest_in(records: list[RawRecord], key: bytes) -> PositionsRow | None:
    """Return the last positions row with this key among records in offset order, or None."""
    for _, _, found, value in reversed(records):
        if found == key and value is not None:
            try:
                return _decode(value)
            except msgspec.DecodeError as error:
                raise TallystreamError(
                    f"metrics-table: the newest positions row can't be read ({error}); it was written by another "
                    "version: use the aggregator that wrote it."
                ) from error
    return None
