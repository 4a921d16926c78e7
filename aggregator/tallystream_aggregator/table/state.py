"""The table's state, and its stored form (MessagePack, with a version)."""

from __future__ import annotations

import sys
from typing import Literal

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream.errors import TallystreamError
from tallystream.record import Sketch
from tallystream_aggregator.sums import MetricId, Offsets
from tallystream_aggregator.table.arithmetic.distributions import Distributions
from tallystream_aggregator.table.arithmetic.partial_sums import PartialSum, dec_hook, enc_hook
from tallystream_aggregator.table.arithmetic.values import Values
from tallystream_aggregator.table.sum_tags import SumTags

STATE_VERSION: Literal[2] = 2
"""Version 1 has no blocks with distributions. It is read, too."""

LifeId = tuple[str, str, str]
"""(app, instance, life)"""
LifeName = tuple[str, str]
"""(app, life) within an instance"""


class Row(msgspec.Struct, array_like=True, gc=False):
    """One metric of one life: its newest values, and the part and seq of their snapshot.

    In the short form `values` is (sum of all runs, value of this run) and `seq` stays 0. `sketch` is that of a
    histogram or timer, None where its snapshot had none.
    """

    part: int
    seq: int
    values: Values
    sketch: Sketch | None = None


class Block(msgspec.Struct, array_like=True, gc=False):
    """A part's newest snapshot, if all metrics of it were accepted, as arrays in native byte order.

    `metrics` has the numbers of the snapshot's metrics, 4 bytes each, in the snapshot's order. `counts` has the counts
    of the counters among them, 8 bytes each, and then those of the histograms and timers if the block has
    `distributions`. All other metrics are rows.
    """

    metrics: bytes
    counts: bytes
    distributions: Distributions | None = None


class Life(msgspec.Struct, array_like=True):
    """One life of an instance.

    What it has, by part: `parts` maps part → highest seq, `blocks` maps part → what arrays have of its newest snapshot.
    By the metric's number: `rows` has all that is not in blocks, `baselines` the values that the sums leave out,
    because they are from before the stream began. `bytes` are those of the names and tags of all its metrics.

    How far it is read: `partition` is the one whose clock applies, `offsets` maps part → the last offset of it that the
    part includes. A part whose newest snapshot is from another partition has no offset.

    When: `last_seen_ms` is the clock at the last record that was applied; `keep_ms` the clock at the last record of any
    seq (or the ULID's time, if that is later), by which the life is forgotten.

    What it is: `living`, or not; `final` if it said that it ends, or was removed; `complete` if its snapshots have all
    metrics of a part. `limits` are those that it has reached.
    """

    instance: str
    app: str
    life: str
    partition: str
    last_seen_ms: int
    every_ms: int
    keep_ms: int
    final: bool = False
    living: bool = True
    parts: dict[int, int] = {}
    rows: dict[int, Row] = {}
    limits: list[str] = []
    offsets: dict[int, int] = {}
    blocks: dict[int, Block] = {}
    complete: bool = True
    baselines: dict[int, Values] = {}
    bytes: int = 0

    __hash__ = object.__hash__  # a life of the table is equal to no other one

    def __post_init__(self) -> None:
        """Share the texts that most lives have in common."""
        self.app, self.partition = sys.intern(self.app), sys.intern(self.partition)

    @property
    def id(self) -> LifeId:
        """Which life it is."""
        return self.app, self.instance, self.life

    @property
    def name(self) -> LifeName:
        """Which life of its instance it is."""
        return self.app, self.life

    @property
    def is_empty(self) -> bool:
        """Whether a tombstone changes nothing. It ends a life, and removes one of the short form."""
        return self.final and not (self.rows or self.blocks) and self.offsets.keys() >= self.parts.keys()

    @property
    def deadline_ms(self) -> int:
        """The partition's time at which the life counts as silent: three intervals after its last record."""
        return self.last_seen_ms + 3 * self.every_ms

    def is_current(self, row: Row) -> bool:
        """Tell whether the row is current: the life is living and its newest snapshot has the metric.

        In a life of incomplete snapshots every row is current.
        """
        return self.living and (not self.complete or row.seq == self.parts.get(row.part, 0))


class Removed(msgspec.Struct, array_like=True):
    """What is gone since the state was stored: metrics and forgotten sums by the number of the metric."""

    lives: list[LifeId] = []
    metrics: list[int] = []
    forgotten_sums: list[int] = []


class State(msgspec.Struct, array_like=True):
    """The table of one shard.

    What it has: `metrics` maps number → metric (a number is never given to another metric by the same process), `lives`
    maps instance → (app, life) → life, oldest first, and `forgotten_sums` maps the metric's number → the partial sums
    of the forgotten lives.

    How far it has read: `clocks` maps partition → the highest append time so far, `offsets` partition → the last one.

    What it has counted since it began: `stale` records, all `records`, `dead` letters, and `forgotten` lives.

    What it is: `shard` of `shards`, and the tags that its sums have, `sum_tags`. `topic_id` is the ID of
    `metrics-table`, empty if it is not known: a topic that is created again has another one. No replay begins before
    the step `replay_since`.

    A difference has only the metrics, lives and forgotten sums that changed, and `removed` has those that are gone.
    """

    version: Literal[1, 2] = STATE_VERSION
    metrics: dict[int, MetricId] = {}
    lives: dict[str, dict[LifeName, Life]] = {}
    forgotten_sums: dict[int, PartialSum] = {}
    clocks: dict[str, int] = {}
    offsets: dict[str, int] = {}
    stale: int = 0
    records: int = 0
    dead: int = 0
    forgotten: int = 0
    shard: int = 0
    shards: int = 1
    sum_tags: SumTags = SumTags()
    topic_id: str = ""
    removed: Removed = msgspec.field(default_factory=Removed)
    replay_since: int = 0

    @property
    def out_ms(self) -> int:
        """The time of an output: the highest time of the partitions, in epoch ms."""
        return max(self.clocks.values(), default=0)

    def offsets_by_topic(self) -> Offsets:
        """Return the last offset of each partition, as topic → partition → offset."""
        found: Offsets = {}
        for name, offset in self.offsets.items():
            topic, _, partition = name.rpartition(":")
            found.setdefault(topic, {})[partition] = offset
        return found


class StateError(TallystreamError):
    """A stored state can't be used: another version of the table wrote it, or it is damaged."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"state: it is damaged, or another version wrote it ({reason}); the checkpoint can't be used.")


pack = msgspec.msgpack.Encoder(enc_hook=enc_hook).encode
"""Returns a state, or a part of it, as bytes."""

_decode = msgpack_decoder(State, dec_hook)


def unpack(data: bytes) -> State:
    """Return the state in `data`.

    Raises:
        StateError: another version wrote it, or it is damaged.
    """
    try:
        state: State = _decode(data)
    except msgspec.DecodeError as error:
        raise StateError(error) from error
    state.version = STATE_VERSION
    return state
