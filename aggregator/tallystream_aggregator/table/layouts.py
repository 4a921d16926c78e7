"""Blocks, which have the counters of a snapshot as one array, and layouts, which have the names of these counters.

If all metrics of a part's newest snapshot were accepted, its counters are a block of 8 bytes each. The next snapshot
with the same metrics in the same order replaces the block as a whole. In every other case (another layout, a lower
count, a tombstone) the block becomes rows first, one for each metric. Both forms have the same values, so no result
depends on the form.
"""

from __future__ import annotations

from array import array
from operator import attrgetter, itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tallystream.record import CLASSES, Counter, Metric
from tallystream_aggregator.counters import Counters
from tallystream_aggregator.table.arithmetic.partial_sums import DISTRIBUTIONS
from tallystream_aggregator.table.arithmetic.sketch_rows import SketchRows
from tallystream_aggregator.table.state import Block, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tallystream_aggregator.counters import SnapshotMetrics
    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.arithmetic.sketch_rows import SketchRow
    from tallystream_aggregator.table.state import Life

MIN_METRICS = 2
"""The least metrics of a block: the layout of one metric takes more than its row."""

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

    `counters` has the numbers of the counters, `others` those of the metrics of all other types, which are those in
    `kinds_of_others`. `sorted` has the numbers in their order. `text_bytes` are those of all names and tags.
    """

    def __init__(self, packed: bytes, numbers: list[int], columns: list[_Column]) -> None:
        self.packed, self.numbers = packed, numbers
        self._names = [one.name for one in columns]
        self._classes = [one.type for one in columns]
        self._tags = [one.tags for one in columns]
        self._has_tags = any(self._tags)
        self.text_bytes = sum(one.text_bytes for one in columns)
        self.counters = [n for n, one in zip(numbers, columns, strict=True) if one.type is Counter]
        self._places_of_others = [at for at, one in enumerate(columns) if one.type is not Counter]
        self.others = tuple(numbers[at] for at in self._places_of_others)
        block = Struct(f"{len(self.counters)}{_COUNTS}")  # for a few counters in half of the time of an array
        self.pack, self.unpack = block.pack, block.unpack
        self.kinds_of_others = [_NAMES[columns[at].type] for at in self._places_of_others]
        self._distributions = [at for at, kind in enumerate(self.kinds_of_others) if kind in DISTRIBUTIONS]
        self._sketch_rows = SketchRows()
        self.sorted = sorted(numbers)
        self.is_sorted = self.sorted == numbers
        self._named: tuple[Counter, ...] = ()  # those of the last `Counters` that are its own
        self._template: bytes | None = None
        self._sort: Callable[[Sequence[int | bytes]], tuple[int | bytes, ...]]
        self._index_of: dict[int, int] | None = None

    @property
    def index_of(self) -> dict[int, int]:
        """The position of each counter in a block, by its number."""
        if self._index_of is None:
            self._index_of = {number: index for index, number in enumerate(self.counters)}
        return self._index_of

    def counts(self, metrics: SnapshotMetrics) -> Sequence[int] | None:
        """Return the counts of the counters among metrics, or None if they are not the layout's, in its order."""
        if isinstance(metrics, Counters):
            if metrics.named is not self._named and self._matches(metrics.named):
                self._named = metrics.named
            return metrics.counts if metrics.named is self._named else None
        if not self._matches(metrics):
            return None
        if not self.others:
            return list(map(_count_of, metrics))
        return [metric.count for metric in metrics if metric.__class__ is Counter]

    def _matches(self, metrics: Sequence[Metric]) -> bool:
        return (
            list(map(_name_of, metrics)) == self._names
            and list(map(type, metrics)) == self._classes
            and (list(map(_tags_of, metrics)) == self._tags if self._has_tags else not any(map(_tags_of, metrics)))
        )

    def others_of(self, metrics: SnapshotMetrics) -> list[Metric]:
        """Return the metrics of other types in a snapshot that fits."""
        listed = list(metrics)
        return [listed[at] for at in self._places_of_others]

    def valid_sketch_row(self, others: Sequence[Metric]) -> SketchRow | None:
        """Return the sketches of the metrics of other types as a row, None if they have none or one may be invalid."""
        found = [others[at] for at in self._distributions]
        return self._sketch_rows.valid_row(found)  # type: ignore[arg-type]  # histograms

    def sketch_row_of(self, others: Sequence[Row], known: SketchRow | None) -> SketchRow | None:
        """Return the sketches of the table's rows of these metrics: `known` if it has just them, None for no row."""
        sketches = [others[at].sketch for at in self._distributions]
        if known is not None and known.has(sketches):
            return known
        return self._sketch_rows.row(sketches)

    def json(self, counts: tuple[int, ...], others: Sequence[bytes]) -> bytes:
        """Return all rows as a list in JSON, by number. `others` are the values of the other types, as its fields."""
        if self._template is None:
            slots = map(self._slot, sorted(range(len(self.numbers)), key=self.numbers.__getitem__))
            self._template = b"[" + b",".join(slots) + b"]"
            places = {number: place for place, number in enumerate((*self.counters, *self.others))}
            self._sort = itemgetter(*map(places.__getitem__, self.sorted))
        if not others and self.is_sorted:
            return self._template % counts
        return self._template % self._sort([*counts, *others])

    def _slot(self, at: int) -> bytes:
        kind, tags = self._classes[at], tuple(self._tags[at].items())
        ends = around_values(("", self._names[at], _NAMES[kind], tags))
        value = b'"count":%d' if kind is Counter else b"%b"
        return value.join(end.replace(b"%", b"%%") for end in ends)


class Layouts:
    """The layouts of a shard's blocks, whose `metrics` are listed by number, and the rows of lives in both forms."""

    def __init__(self, metrics: Mapping[int, MetricId]) -> None:
        self._metrics = metrics
        self._layouts: dict[bytes, Layout] = {}
        self._columns: dict[int, _Column] = {}
        self._bytes = 0

    def layout_for(self, block: Block) -> Layout:
        """Return the layout of a block."""
        return self._layouts.get(block.metrics) or self._add(block.metrics)

    def layout_with(self, numbers: Iterable[int]) -> Layout:
        """Return the layout of a snapshot that has these metrics."""
        packed = array(_NUMBERS, numbers).tobytes()
        return self._layouts.get(packed) or self._add(packed)

    def block_to_rows(self, life: Life, part: int) -> None:
        """Turn the block of a part into rows. `life.parts` must still have the seq of its snapshot."""
        life.rows |= self.counter_rows(life, part)
        del life.blocks[part]

    def counter_rows(self, life: Life, part: int) -> dict[int, Row]:
        """Return the rows of the counters in a block. `life.parts` must have the seq of its snapshot."""
        block, seq = life.blocks[part], life.parts[part]
        found = zip(self.layout_for(block).counters, counts_of(block), strict=True)
        return {number: Row(part, seq, (count,)) for number, count in found}

    def rows_to_block(self, life: Life, part: int, numbers: Iterable[int]) -> None:
        """Turn the rows of a part's newest snapshot, which has the metrics `numbers`, into a block."""
        layout, rows = self.layout_with(numbers), life.rows
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
        numbers = array(_NUMBERS, packed).tolist()
        columns = [self._columns.get(number) or self._column(number) for number in numbers]
        layout = Layout(packed, numbers, columns)
        size = COLUMN_BYTES * len(columns) + 2 * layout.text_bytes
        if self._bytes + size > MAX_BYTES:
            self._layouts, self._columns, self._bytes = {}, {}, 0
        self._bytes += size
        self._layouts[packed] = layout
        return layout

    def _column(self, number: int) -> _Column:
        metric = self._metrics[number]
        _, name, kind, tags = metric
        column = self._columns[number] = _Column(name, CLASSES[kind], dict(tags), text_bytes(metric))
        return column


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
    counters = 0
    for block in life.blocks.values():
        counters += len(block.counts) // 8
    return len(life.rows) + counters


def around_values(metric: MetricId) -> tuple[bytes, bytes]:
    """Return what is before and after the values in a metric as JSON."""
    _, name, kind, tags = metric
    tail: dict[str, Any] = {"name": name, "tags": dict(tags)} if tags else {"name": name}
    return f'{{"type":"{kind}",'.encode(), b"," + _encode(tail)[1:]
