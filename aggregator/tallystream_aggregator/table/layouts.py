"""Blocks, which have the metrics of a snapshot as arrays, and layouts, which have the names of these metrics.

If all metrics of a part's newest snapshot were accepted, its counters are a block of 8 bytes each. The next snapshot
with the same metrics in the same order replaces the block as a whole. Then its histograms and timers are columns of the
block, too, unless one is unusual. In every other case (another layout, a lower count, a tombstone) the block becomes
rows first, one for each metric. Both forms have the same values, so no result depends on the form.
"""

from __future__ import annotations

from array import array
from operator import attrgetter, itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tallystream.record import CLASSES, Counter, Metric
from tallystream_aggregator.counters import Counters
from tallystream_aggregator.table.arithmetic.distributions import Columns
from tallystream_aggregator.table.arithmetic.partial_sums import DISTRIBUTIONS
from tallystream_aggregator.table.state import Block, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tallystream_aggregator.counters import SnapshotMetrics
    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.arithmetic.distributions import Distributions
    from tallystream_aggregator.table.state import Life

MIN_METRICS = 2
"""The least metrics of a block: the layout of one metric takes more than its row."""

FEW_BLOCKS = 16
"""Up to so many blocks of a life are visited one by one."""

MAX_BYTES = 128 << 20
"""About the most bytes of all cached layouts. Above it, the cache is cleared."""

COLUMN_BYTES = 300
"""What a layout keeps of a metric besides the texts of its name and tags, which it has twice."""

_NUMBERS: Final = "i"
_COUNTS: Final = "q"
"""Types of the two arrays of a block: 4 and 8 bytes."""
_encode = msgspec.json.Encoder().encode
_NAMES: dict[type[object], str] = {of: name for name, of in CLASSES.items()}
_name_of, _tags_of, _count_of = map(attrgetter, ("name", "tags", "count"))


class _Column(NamedTuple):
    """A metric of a layout. `text_bytes` are those of its name and tags."""

    name: str
    type: type[object]
    tags: dict[str, str]
    text_bytes: int


class Layout:
    """The metrics of a snapshot in its order: `numbers` has their numbers, `packed` the same as bytes.

    `counted` has the numbers of those whose counts are in a block: the `counters`, and if the block `has_columns` also
    the `distributions`, which are `columns` then. `others` has those that are rows, `kinds_of_others` their types, and
    `not_counters` both. `sorted` has the numbers in their order. `text_bytes` are those of all names and tags.
    """

    def __init__(self, packed: bytes, numbers: list[int], columns: list[_Column], *, has_columns: bool) -> None:
        self.packed, self.numbers, self.has_columns = packed, numbers, has_columns
        self._names = [one.name for one in columns]
        self._classes = [one.type for one in columns]
        self._tags = [one.tags for one in columns]
        self._has_tags = any(self._tags)
        self.text_bytes = sum(one.text_bytes for one in columns)
        kinds = [_NAMES[one.type] for one in columns]
        self._distributions = [at for at, kind in enumerate(kinds) if kind in DISTRIBUTIONS]
        self.distributions = [numbers[at] for at in self._distributions]
        self.columns = Columns([kinds[at] for at in self._distributions]) if self._distributions else None
        in_columns = DISTRIBUTIONS if has_columns else set()
        self._others = [at for at, kind in enumerate(kinds) if kind != "counter" and kind not in in_columns]
        self.others = tuple(numbers[at] for at in self._others)
        self.kinds_of_others = [kinds[at] for at in self._others]
        self.counters = [n for n, one in zip(numbers, columns, strict=True) if one.type is Counter]
        self.counted = self.counters + self.distributions if has_columns else self.counters
        self.not_counters = (*self.counted[len(self.counters) :], *self.others)
        block = Struct(f"{len(self.counted)}{_COUNTS}")  # for a few counters in half of the time of an array
        self.pack, self.unpack = block.pack, block.unpack
        self.sorted = sorted(numbers)
        self.is_sorted = self.sorted == numbers
        self._named: tuple[Counter, ...] = ()  # those of the last `Counters` that are its own
        self._template: bytes | None = None
        self._sort: Callable[[Sequence[int | bytes]], tuple[int | bytes, ...]]
        self._index_of: dict[int, int] | None = None

    @property
    def index_of(self) -> dict[int, int]:
        """The position of each count in a block, by the number of its metric."""
        if self._index_of is None:
            self._index_of = {number: index for index, number in enumerate(self.counted)}
        return self._index_of

    def counts(self, metrics: SnapshotMetrics) -> Sequence[int] | None:
        """Return the counts of a block of these metrics, or None if they are not the layout's, in its order."""
        if isinstance(metrics, Counters):
            if metrics.named is not self._named and self._matches(metrics.named):
                self._named = metrics.named
            return metrics.counts if metrics.named is self._named else None
        if not self._matches(metrics):
            return None
        if len(self.counters) == len(metrics):
            return list(map(_count_of, metrics))
        counts = [metric.count for metric in metrics if metric.__class__ is Counter]
        if self.has_columns:
            counts += [metrics[at].count for at in self._distributions]  # type: ignore[union-attr]  # histograms
        return counts

    def _matches(self, metrics: Sequence[Metric]) -> bool:
        return (
            list(map(_name_of, metrics)) == self._names
            and list(map(type, metrics)) == self._classes
            and (list(map(_tags_of, metrics)) == self._tags if self._has_tags else not any(map(_tags_of, metrics)))
        )

    def others_of(self, metrics: SnapshotMetrics) -> list[Metric]:
        """Return the metrics that are rows, of a snapshot that fits."""
        listed = list(metrics)
        return [listed[at] for at in self._others]

    def distributions_of(self, metrics: SnapshotMetrics) -> Distributions | None:
        """Return the histograms and timers of a snapshot that fits and has some, or None if one needs a row."""
        assert self.columns is not None
        return self.columns.read([metrics[at] for at in self._distributions])  # type: ignore[misc, index]  # histograms

    def json(self, counters: tuple[int, ...], others: Sequence[bytes]) -> bytes:
        """Return all metrics as a list in JSON, by number. `others` are the values of `not_counters`, as its fields."""
        if self._template is None:
            slots = map(self._slot, sorted(range(len(self.numbers)), key=self.numbers.__getitem__))
            self._template = b"[" + b",".join(slots) + b"]"
            places = {number: place for place, number in enumerate((*self.counters, *self.not_counters))}
            self._sort = itemgetter(*map(places.__getitem__, self.sorted))
        if not others and self.is_sorted:
            return self._template % counters
        return self._template % self._sort([*counters, *others])

    def _slot(self, at: int) -> bytes:
        kind, tags = self._classes[at], self._tags[at]
        named = _encode({"name": self._names[at], "tags": tags} if tags else {"name": self._names[at]})
        value = b'"count":%d' if kind is Counter else b"%b"
        return b'{"type":"%b",%b,%b' % (_NAMES[kind].encode(), value, named[1:].replace(b"%", b"%%"))


class Layouts:
    """The layouts of a shard's blocks, whose `metrics` are listed by number, and the rows of lives in both forms."""

    def __init__(self, metrics: Mapping[int, MetricId]) -> None:
        self._metrics = metrics
        self._layouts: dict[tuple[bytes, bool], Layout] = {}
        self._columns: dict[int, _Column] = {}
        self._bytes = 0
        # A life, and the part of each metric in its blocks. It may have some that are rows now, which are found first.
        self._indexed: tuple[Life | None, dict[int, int]] = None, {}

    def layout_for(self, block: Block) -> Layout:
        """Return the layout of a block."""
        key = block.metrics, block.distributions is not None
        return self._layouts.get(key) or self._add(*key)

    def layout_with(self, numbers: Iterable[int]) -> Layout:
        """Return the layout of a snapshot that has these metrics, whose block has no columns."""
        key = array(_NUMBERS, numbers).tobytes(), False
        return self._layouts.get(key) or self._add(*key)

    def block_to_rows(self, life: Life, part: int) -> None:
        """Turn the block of a part into rows. `life.parts` must still have the seq of its snapshot."""
        life.rows |= self.block_rows(life, part)
        del life.blocks[part]

    def block_rows(self, life: Life, part: int) -> dict[int, Row]:
        """Return what a block has as rows. `life.parts` must have the seq of its snapshot."""
        layout = self.layout_for(life.blocks[part])
        return {number: _row(life, part, layout, index) for index, number in enumerate(layout.counted)}

    def rows_to_columns(self, life: Life, part: int) -> bool:
        """Turn the rows of the histograms and timers of a block into columns. Return False if one is unusual."""
        block, seq = life.blocks[part], life.parts[part]
        layout = self.layout_for(block)
        rows = [life.rows[number] for number in layout.distributions]
        if layout.columns is None or any(row.seq != seq for row in rows):
            return False
        block.distributions = layout.columns.of_rows([(row.values, row.sketch) for row in rows])
        if block.distributions is None:
            return False
        block.counts += array(_COUNTS, [row.values[0] for row in rows]).tobytes()  # type: ignore[type-var]  # counts
        moved = set(layout.distributions)
        life.rows = {number: row for number, row in life.rows.items() if number not in moved}
        self._indexed = None, {}
        return True

    def columns_to_rows(self, life: Life, part: int) -> None:
        """Turn the columns of a block into rows."""
        block = life.blocks[part]
        counters = self.layout_for(block).counters
        life.rows |= self.column_rows(life, part)
        block.counts, block.distributions = block.counts[: 8 * len(counters)], None

    def column_rows(self, life: Life, part: int) -> dict[int, Row]:
        """Return the columns of a block as rows."""
        layout = self.layout_for(life.blocks[part])
        counters = len(layout.counters)
        return {n: _row(life, part, layout, index) for index, n in enumerate(layout.counted[counters:], counters)}

    def rows_to_block(self, life: Life, part: int, numbers: Iterable[int]) -> None:
        """Turn the rows of a part's newest snapshot, which has the metrics `numbers`, into a block."""
        layout, rows = self.layout_with(numbers), life.rows
        counts = array(_COUNTS, [rows.pop(number).values[0] for number in layout.counters])  # type: ignore[type-var]
        life.rows = dict(rows)  # the old one keeps the memory of what was removed
        life.blocks[part] = Block(layout.packed, counts.tobytes())
        self._indexed = None, {}

    def row(self, life: Life, number: int, *, with_sketch: bool = True) -> Row | None:
        """Return the row of a metric, or None. That of a metric in a block is a copy, with its sketch if needed."""
        row = life.rows.get(number)
        if row is None and life.blocks:
            for part in life.blocks if len(life.blocks) <= FEW_BLOCKS else self._parts_with(life, number):
                layout = self.layout_for(life.blocks[part])
                index = layout.index_of.get(number)
                if index is not None:
                    return _row(life, part, layout, index, with_sketch=with_sketch)
        return row

    def _parts_with(self, life: Life, number: int) -> tuple[int, ...]:
        """Return the part whose block has a metric, if there is one."""
        if self._indexed[0] is not life:
            counted = ((part, self.layout_for(block).counted) for part, block in life.blocks.items())
            self._indexed = life, {each: part for part, numbers in counted for each in numbers}
        part = self._indexed[1].get(number)
        return () if part is None else (part,)

    def _add(self, packed: bytes, has_columns: bool) -> Layout:
        numbers = array(_NUMBERS, packed).tolist()
        columns = [self._columns.get(number) or self._column(number) for number in numbers]
        layout = Layout(packed, numbers, columns, has_columns=has_columns)
        size = COLUMN_BYTES * len(columns) + 2 * layout.text_bytes
        if self._bytes + size > MAX_BYTES:
            self._layouts, self._columns, self._bytes = {}, {}, 0
        self._bytes += size
        self._layouts[packed, has_columns] = layout
        return layout

    def _column(self, number: int) -> _Column:
        metric = self._metrics[number]
        _, name, kind, tags = metric
        column = self._columns[number] = _Column(name, CLASSES[kind], dict(tags), text_bytes(metric))
        return column


def _row(life: Life, part: int, layout: Layout, index: int, *, with_sketch: bool = True) -> Row:
    """Return the row of a metric of a block, which is at `index` among its counts."""
    block, place, seq = life.blocks[part], index - len(layout.counters), life.parts[part]
    count = counts_of(block)[index]
    if layout.columns is None or block.distributions is None or place < 0:
        return Row(part, seq, (count,))
    values = layout.columns.values(block.distributions, place, count)
    return Row(part, seq, values, layout.columns.sketch(block.distributions, place) if with_sketch else None)


def counts_of(block: Block) -> memoryview[int]:
    """Return the counts in a block."""
    return memoryview(block.counts).cast(_COUNTS)


def text_bytes(metric: MetricId) -> int:
    """Return the bytes of a metric's name and tags, in UTF-8."""
    _, name, _, tags = metric
    text = "".join((name, *map("".join, tags))) if tags else name
    return len(text) if text.isascii() else len(text.encode())


def metric_count(life: Life) -> int:
    """Return how many metrics a life has."""
    counted = 0
    for block in life.blocks.values():
        counted += len(block.counts) // 8
    return len(life.rows) + counted
