"""The sums of a table of several shards: a shard's partial sums replace its earlier ones, and are added over shards.

This is a changelog table, too, with one row for each metric and shard. Every value is absolute, so a record that is
applied again changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream_aggregator.sums import MetricId
from tallystream_aggregator.table.arithmetic.partial_sums import PartialSum, dec_hook, enc_hook

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.sums import Offsets, Sum


class ShardSum(msgspec.Struct, array_like=True):
    """The partial sums of a shard for a metric. `out_ms` is the time of the output."""

    shard: int
    metric: MetricId
    partial: PartialSum
    out_ms: int

    def __post_init__(self) -> None:
        if self.partial.kind != self.metric[2]:
            raise ValueError(f"the partial sums of a {self.metric[2]} are those of a {self.partial.kind}")


encode = msgspec.msgpack.Encoder(enc_hook=enc_hook).encode
"""Returns partial sums as bytes."""

decode = msgpack_decoder(ShardSum, dec_hook)
"""Returns the partial sums in bytes. If there are none, it raises msgspec.DecodeError."""


class CombinerGroup:
    """The partial sums of the shards for each metric, and their sums."""

    def __init__(self) -> None:
        self._shard_sums: dict[MetricId, dict[int, ShardSum]] = {}
        self._changed: set[MetricId] = set()
        self._emptied: set[MetricId] = set()

    def update(self, shard_sums: Iterable[ShardSum], *, is_new: bool = True) -> None:
        """Replace the partial sums of shards by newer ones. Those that are not new are published already."""
        for one in shard_sums:
            self._shard_sums.setdefault(one.metric, {})[one.shard] = one
            if is_new:
                self._changed.add(one.metric)
            if one.partial.is_empty:
                self._emptied.add(one.metric)

    def remove(self, metric: MetricId, shard: int) -> None:
        """Remove the partial sums of a shard for a metric. All other shards have published theirs with the removal."""
        of_shards = self._shard_sums.get(metric, {})
        if of_shards.pop(shard, None) is not None and not of_shards:
            del self._shard_sums[metric]
            self._changed.discard(metric)

    def changes(self, offsets: Offsets | None = None) -> list[Sum]:
        """Return the sums that changed since the last call, by metric, as of these offsets, and clear the list.

        Metrics that no shard has any more are dropped.
        """
        totals = [self._total(metric, offsets or {}) for metric in sorted(self._changed)]
        for metric in self._emptied & self._shard_sums.keys():
            if all(one.partial.is_empty for one in self._shard_sums[metric].values()):
                del self._shard_sums[metric]
        self._changed, self._emptied = set(), set()
        return totals

    def _total(self, metric: MetricId, offsets: Offsets) -> Sum:
        partial, out_ms = PartialSum(metric[2]), 0
        for one in self._shard_sums[metric].values():
            partial.merge(one.partial)
            out_ms = max(out_ms, one.out_ms)
        return partial.row(metric, out_ms, offsets)
