"""A table cut into shards of instances: which shard an instance is in, and what a shard says of one metric.

A shard sums over its own instances, its base among them, and sends that to the metric's combiner
(tallystream.aggregator.table.combined), where it replaces what the shard sent before.
"""

from __future__ import annotations

import zlib

import msgspec

from tallystream.aggregator.table.exact import Extreme, Sum
from tallystream.aggregator.table.kinds import Value
from tallystream.aggregator.table.outputs import Offsets
from tallystream.aggregator.table.partial import Partial
from tallystream.aggregator.table.sketches import SKETCHED
from tallystream.aggregator.table.state import MetricId
from tallystream.reporter.decoding import msgpack_decoder

_encoder = msgspec.msgpack.Encoder()


def shard_of(key: bytes | None, shards: int) -> int:
    """Return the shard of the records with this key: CRC-32, which Spark computes alike."""
    return zlib.crc32(key or b"") % shards


def group_of(metric: MetricId, groups: int) -> int:
    """Return the group of combiners that a metric is in."""
    return zlib.crc32(_encoder.encode(metric)) % groups


class SumCell(msgspec.Struct, array_like=True):
    """`Sum`, with the numbers that 64 bits may not hold in hexadecimal."""

    known: int
    whole: str
    floats: int
    units: str


class Bins(msgspec.Struct, array_like=True):
    """`Merged`: bins as (index, count), counts in hexadecimal."""

    positive: list[tuple[int, str]]
    negative: list[tuple[int, str]]
    zeros: str
    missing: int


class ShardSum(msgspec.Struct, array_like=True):
    """What a shard has of a metric, its base in it, as of its input `offsets`; `out_ms` is its newest output's time."""

    shard: int
    metric: MetricId
    lives: int
    instances: int
    retired: int
    sums: list[SumCell]
    extremes: list[Value]
    bins: Bins | None
    out_ms: int
    offsets: Offsets

    def partial(self) -> Partial:
        """Return it as a partial that merges with those of other shards."""
        partial = Partial(self.metric[2])
        partial.lives, partial.instances, partial.leaving = self.lives, self.instances, self.retired
        sums, extremes = iter(self.sums), iter(self.extremes)
        for cell in partial.cells:
            if isinstance(cell, Sum):
                said = next(sums)
                cell.merge(Sum(said.known, int(said.whole, 16), said.floats, int(said.units, 16)))
            else:
                cell.found(next(extremes))
        if partial.merged is not None and self.bins is not None:
            partial.merged.positive = {index: int(count, 16) for index, count in self.bins.positive}
            partial.merged.negative = {index: int(count, 16) for index, count in self.bins.negative}
            partial.merged.zeros, partial.merged.missing = int(self.bins.zeros, 16), self.bins.missing
        return partial


def shard_sum(shard: int, metric: MetricId, partial: Partial, out_ms: int, offsets: Offsets) -> ShardSum:
    """Return what a shard says of a metric; `partial` has the base in it."""
    merged = partial.merged if metric[2] in SKETCHED else None
    bins = None
    if merged is not None:
        positive, negative = ([(i, f"{n:x}") for i, n in found.items()] for found in (merged.positive, merged.negative))
        bins = Bins(positive, negative, f"{merged.zeros:x}", merged.missing)
    return ShardSum(
        shard,
        metric,
        partial.lives,
        partial.instances,
        partial.leaving,
        [SumCell(c.known, f"{c.whole:x}", c.floats, f"{c.units:x}") for c in partial.cells if isinstance(c, Sum)],
        [cell.value for cell in partial.cells if isinstance(cell, Extreme)],
        bins,
        out_ms,
        offsets,
    )


_decode = msgpack_decoder(ShardSum)


def encode(said: ShardSum) -> bytes:
    """Return it as bytes."""
    return _encoder.encode(said)


def decode(data: bytes) -> ShardSum:
    """Return what is in `data`.

    Raises:
        msgspec.DecodeError: it is no such thing.
    """
    return _decode(data)
