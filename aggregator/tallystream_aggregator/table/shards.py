"""A table cut into shards of instances: which shard an instance is in, and what a shard says of one metric.

A shard sums over its own instances, forgotten lives among them, and sends that to the metric's combiner
(table.combiners), where it replaces what the shard sent before.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream_aggregator.table.arithmetic.partial_sums import Held, hold
from tallystream_aggregator.table.outputs import Offsets
from tallystream_aggregator.table.state import MetricId

if TYPE_CHECKING:
    from tallystream_aggregator.table.arithmetic.partial_sums import Partial

_encoder = msgspec.msgpack.Encoder()


def shard_of(key: bytes | None, shards: int) -> int:
    """Return the shard of the records with this key: CRC-32, which Spark computes alike."""
    return zlib.crc32(key or b"") % shards


def group_of(metric: MetricId, groups: int) -> int:
    """Return the group of combiners that a metric is in."""
    return zlib.crc32(_encoder.encode(metric)) % groups


class ShardSum(msgspec.Struct, array_like=True):
    """What a shard has of a metric, as of its input `offsets`; `out_ms` is its newest output's time."""

    shard: int
    metric: MetricId
    lives: int
    instances: int
    retired: int
    held: Held
    out_ms: int
    offsets: Offsets

    def partial(self) -> Partial:
        """Return it as a partial that merges with those of other shards."""
        partial = self.held.partial(self.metric[2])
        partial.lives, partial.instances, partial.forgotten = self.lives, self.instances, self.retired
        return partial


def shard_sum(shard: int, metric: MetricId, partial: Partial, out_ms: int, offsets: Offsets) -> ShardSum:
    """Return what a shard says of a metric."""
    counts = (partial.lives, partial.instances, partial.forgotten)
    return ShardSum(shard, metric, *counts, hold(partial), out_ms, offsets)


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
