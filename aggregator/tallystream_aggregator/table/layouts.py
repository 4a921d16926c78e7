"""Blocks, which have the counters of a snapshot as one array, and layouts, which have the names of these counters.

If all metrics of a part's newest snapshot were accepted, its counters are a block of 8 bytes each. The next snapshot
with the same metrics in the same order replaces the block as a whole. In every other case (another layout, a lower
count, a tombstone) the block becomes rows first, one for each metric. Both forms have the same values, so no result
depends on the form.
"""

from __future__ import annotations

from array import array
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec

from tallystream.record import CLASSES, Counter, Metric
from tallystream_aggregator.table.state import Block, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.state import Life

MIN_METRICS = 2
"""The least metrics of a block: the layout of one metric takes more than its row."""

MAX_COLUMNS = 1_000_000
"""The most metrics in all cached layouts, about 220 bytes each. Above it, the cache is cleared."""

_NUMBERS: Final = "i"
_COUNTS: Final = "q"
"""Types of the two arrays of a block: 4 and 8 bytes."""
_COUNTER = "counter"
_encode = msgspec.json.Encoder().encode
_name_of, _tags_of, _count_of = map(attrgetter, ("name", "tags", "count"))


class Layout:
    """The metrics of a snapshot in its order: `numbers` has their numbers, `packed` the same as bytes.

    `counters` has the numbers of the counters, `others` the metrics of all other types as (position, number). `sorted`
    has the numbers in their order.
    """

    def __init__(self, packed: bytes, metrics: Mapping[int, MetricId], tags: dict[int, dict[str, str]]) -> None:
        self.packed = packed
        self.numbers = array(_NUMBERS, packed).tolist()
        own = [metrics[number] for number in self.numbers]
        self._names = [name for _, name, _, _ in own]
        self._classes = [CLASSES[kind] for _, _, kind, _ in own]
        self._tags = [tags.setdefault(n, dict(one[3])) for n, one in zip(self.numbers, own, strict=True)]
        self.counters = [n for n, (_, _, kind, _) in zip(self.numbers, own, strict=True) if kind == _COUNTER]
        self.others = [(at, n) for at, n in enumerate(self.numbers) if own[at][2] != _COUNTER]
        self.sorted = sorted(self.numbers)
        self._is_sorted = self.sorted == self.numbers
        self._template: str | None = None
        self._index_of: dict[int, int] | None = None

    @property
    def index_of(self) -> dict[int, int]:
        """The position of each counter in a block, by its number."""
        if self._index_of is None:
            self._index_of = {number: index for index, number in enumerate(self.counters)}
        return self._index_of

    def matches(self, metrics: list[Metric]) -> bool:
        """Tell whether these are the metrics of the layout, in its order."""
        return (
            list(map(_name_of, metrics)) == self._names
            and list(map(type, metrics)) == self._classes
            and list(map(_tags_of, metrics)) == self._tags
        )

    def counts(self, metrics: list[Metric]) -> list[int]:
        """Return the counts of the counters in a snapshot that fits."""
        if not self.others:
            return list(map(_count_of, metrics))
        return [metric.count for metric in metrics if metric.__class__ is Counter]

    def text(self, counts: Sequence[int], others: dict[int, str]) -> str:
        """Return all rows as JSON, by number. `others` maps number → the row of another type."""
        if self._template is None:
            self._template = ",".join(
                self._slot(at) for at in sorted(range(len(self.numbers)), key=self.numbers.__getitem__)
            )
        if not others and self._is_sorted:
            return self._template % tuple(counts)
        values = {**others, **dict(zip(self.counters, counts, strict=True))}
        return self._template % tuple(values[number] for number in self.sorted)

    def _slot(self, at: int) -> str:
        kind = self._classes[at]
        if kind is not Counter:
            return "%s"
        metric = Counter(name=self._names[at], tags=self._tags[at], count=0)
        return _encode(metric).decode().replace("%", "%%").replace('"count":0', '"count":%d', 1)  # it precedes the name


class Layouts:
    """The layouts of a shard's blocks, whose `metrics` are listed by number, and the rows of lives in both forms."""

    def __init__(self, metrics: Mapping[int, MetricId]) -> None:
        self._metrics = metrics
        self._layouts: dict[bytes, Layout] = {}
        self._tags: dict[int, dict[str, str]] = {}
        self._columns = 0

    def layout_for(self, block: Block) -> Layout:
        """Return the layout of a block."""
        return self._layouts.get(block.metrics) or self._add(block.metrics)

    def block_to_rows(self, life: Life, part: int) -> None:
        """Turn the block of a part into rows. `life.parts` must still have the seq of its snapshot."""
        if part in life.blocks:
            life.rows |= self.counter_rows(life, part)
            del life.blocks[part]

    def counter_rows(self, life: Life, part: int) -> dict[int, Row]:
        """Return the rows of the counters in a block. `life.parts` must have the seq of its snapshot."""
        block, seq = life.blocks[part], life.parts[part]
        found = zip(self.layout_for(block).counters, counts_of(block), strict=True)
        return {number: Row(part, seq, (count,)) for number, count in found}

    def blocks_to_rows(self, life: Life) -> None:
        """Turn all blocks of a life into rows."""
        for part in list(life.blocks):
            self.block_to_rows(life, part)

    def rows_to_block(self, life: Life, part: int, numbers: Iterable[int]) -> None:
        """Turn the rows of a part's newest snapshot, which has the metrics `numbers`, into a block."""
        packed = array(_NUMBERS, numbers).tobytes()
        layout = self._layouts.get(packed) or self._add(packed)
        rows = life.rows
        counts = array(_COUNTS, [rows.pop(number).values[0] for number in layout.counters])  # type: ignore[type-var]
        life.rows = dict(rows)  # the old one keeps the memory of what was removed
        life.blocks[part] = Block(layout.packed, counts.tobytes())

    def row(self, life: Life, number: int) -> Row | None:
        """Return the row of a metric, or None. The row of a counter in a block is a copy."""
        row = life.rows.get(number)
        if row is None and life.blocks:
            for part, block in life.blocks.items():
                index = self.layout_for(block).index_of.get(number)
                if index is not None:
                    return Row(part, life.parts[part], (counts_of(block)[index],))
        return row

    def _add(self, packed: bytes) -> Layout:
        layout = Layout(packed, self._metrics, self._tags)
        self._columns += len(layout.numbers)
        if self._columns > MAX_COLUMNS:
            self._layouts, self._tags, self._columns = {}, {}, len(layout.numbers)
        self._layouts[packed] = layout
        return layout


def counts_of(block: Block) -> memoryview[int]:
    """Return the counts in a block."""
    return memoryview(block.counts).cast(_COUNTS)


def metric_count(life: Life) -> int:
    """Return how many metrics a life has."""
    counters = 0
    for block in life.blocks.values():
        counters += len(block.counts) // 8
    return len(life.rows) + counters
