"""The partial sums of one metric over many lives: the arithmetic of rules 4 to 7 and 9, and the stored form.

Each contribution can be subtracted again, so the cost of a step depends on its changes and not on the number of
lives. The partial sums of several shards merge into the sum of the metric.
"""

from __future__ import annotations

import operator
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tallystream import record
from tallystream.metric_types import CURRENT, HIGHEST, LOWEST, QUANTILES, TOTAL, TYPES, Field
from tallystream_aggregator import sums
from tallystream_aggregator.instances import INSTANCES
from tallystream_aggregator.table.arithmetic import sketches
from tallystream_aggregator.table.arithmetic.exact_sum import Counts, ExactSum, Extreme
from tallystream_aggregator.table.arithmetic.values import Stored, Totals, Value, Values, are_same, saturated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tallystream_aggregator.sums import MetricId, Offsets

SumOrExtreme = ExactSum | Extreme

_TYPES = TYPES | {INSTANCES: (Field("ended", TOTAL), Field("silent", TOTAL))}
_SUM, _MIN, _MAX, _COUNTS = range(4)
_OPERATIONS = {LOWEST: (_MIN,), HIGHEST: (_MAX,), "value": (_SUM, _MIN, _MAX), "counts": (_COUNTS,)}
"""The operations of a field, by its name or by how it adds up."""
_CELLS = {
    kind: tuple(
        (index, operation, field.adds == CURRENT)
        for index, field in enumerate(fields)
        for operation in _OPERATIONS.get(field.name) or _OPERATIONS.get(field.adds, (_SUM,))
    )
    for kind, fields in _TYPES.items()
}
_OF_OPERATION: dict[int, Callable[[], SumOrExtreme]] = {
    _SUM: ExactSum,
    _MIN: lambda: Extreme(operator.lt),
    _MAX: lambda: Extreme(operator.gt),
    _COUNTS: Counts,
}
_EXTREMES = {
    kind: [place for place, (_, operation, _) in enumerate(cells) if operation in (_MIN, _MAX)]
    for kind, cells in _CELLS.items()
}
_NEW_CELLS = {kind: [_OF_OPERATION[operation] for _, operation, _ in cells] for kind, cells in _CELLS.items()}
DISTRIBUTIONS = {"histogram", "timer"}
_SHARES = tuple(QUANTILES.values())
_encode = msgspec.json.Encoder().encode


class Contribution(NamedTuple):
    """The values of one life in a metric. `current` tells whether its momentary values count."""

    values: Values
    current: bool
    sketch: record.Sketch | None = None


Change = tuple[Stored, Stored]
"""What the table keeps of a life's metric, before and after."""

_NO_LIFE = Contribution((None,) * max(map(len, TYPES.values())), current=False)


class PartialSum:
    """The sums of one metric over some lives: gauges of the living ones (rule 5), rates too (rule 6), counts of all.

    `lives` and `instances` count living ones. `forgotten` counts lives whose rows are deleted and whose counts stay in
    the sum.
    """

    __slots__ = ("cells", "forgotten", "instances", "kind", "lives", "merged")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.cells: list[SumOrExtreme] = [new() for new in _NEW_CELLS[kind]]
        self.merged = sketches.MergedSketch() if kind in DISTRIBUTIONS else None
        self.lives = self.instances = self.forgotten = 0

    def replace(self, old: Contribution | None, new: Contribution | None) -> None:
        """Replace the contribution of a life. None stands for a life that does not have the metric."""
        before, was, sketch = old or _NO_LIFE
        after, now, new_sketch = new or _NO_LIFE
        self.lives += now - was
        for cell, (index, _, momentary) in zip(self.cells, _CELLS[self.kind], strict=True):
            value, new_value = before[index], after[index]
            if momentary:
                value, new_value = value if was else None, new_value if now else None
            if value is not new_value:
                cell.replace(value, new_value)  # type: ignore[arg-type]  # of the cell's type
        if self.merged is not None:
            self.merged.replace(([before[0]], [sketch]), ([after[0]], [new_sketch]))

    def replace_all(self, changes: Iterable[Change]) -> None:
        """Replace the values of lives that have the metric as a current one, before and after."""
        changed = [(old, new) for old, new in changes if old[1] != new[1] or not are_same(old[0], new[0])]
        if not changed:
            return
        both = zip(*changed, strict=True)
        (old_values, old_sketches), (new_values, new_sketches) = (zip(*some, strict=True) for some in both)
        old, new = list(zip(*old_values, strict=True)), list(zip(*new_values, strict=True))
        for cell, (index, _, _) in zip(self.cells, _CELLS[self.kind], strict=True):
            if not are_same(old[index], new[index]):
                cell.replace_all(old[index], new[index])
        if self.merged is not None:
            self.merged.replace((old[0], old_sketches), (new[0], new_sketches))

    def add_to_count(self, difference: int, more: int = 0, living: int = 0) -> None:
        """Add `difference` to the count, and count `more` lives as its terms, `living` of them living."""
        self.lives += living
        cell = self.cells[0]
        cell.terms += more  # type: ignore[union-attr]  # the count is a sum
        cell.integers += difference  # type: ignore[union-attr]

    @property
    def is_empty(self) -> bool:
        """Whether no life adds anything. A gauge of silent lives is empty, too."""
        missing = 0 if self.merged is None else self.merged.missing
        terms = any(cell.terms if isinstance(cell, ExactSum) else cell.value is not None for cell in self.cells)
        return not (self.lives or self.instances or self.forgotten or missing or terms)

    @property
    def lost(self) -> bool:
        """Whether an extreme has to be found again among all lives."""
        return any(self.cells[place].lost for place in _EXTREMES[self.kind])  # type: ignore[union-attr]  # extremes

    def rescan(self, contributions: Iterable[Contribution], others: Iterable[PartialSum] = ()) -> None:
        """Find lost extremes again among the contributions of all lives and the partial sums `others`."""
        lives, partials = list(contributions), list(others)
        for place, (cell, (index, operation, momentary)) in enumerate(zip(self.cells, _CELLS[self.kind], strict=True)):
            if isinstance(cell, Extreme) and cell.lost:
                column = [contribution.values[index] for contribution in lives if contribution.current or not momentary]
                column += [_read(other.cells[place]) for other in partials]
                known = [value for value in column if value is not None]
                cell.set((min if operation == _MIN else max)(known, default=None))  # type: ignore[arg-type]

    def merge(self, other: PartialSum, sign: int = 1) -> None:
        """Add the partial sums of other lives of the same metric. With the sign -1, subtract some that were merged."""
        self.lives += sign * other.lives
        self.instances += sign * other.instances
        self.forgotten += sign * other.forgotten
        for cell, more in zip(self.cells, other.cells, strict=True):
            if isinstance(cell, ExactSum) and isinstance(more, ExactSum):
                cell.merge(more, sign)
            elif isinstance(cell, Extreme) and isinstance(more, Extreme):
                cell.replace(*((None, more.value) if sign > 0 else (more.value, None)))
        if self.merged is not None and other.merged is not None:
            self.merged.merge(other.merged, subtract=sign < 0)

    def totals(self) -> Totals:
        """Return the summed fields. They may exceed 64 bits, or be infinite."""
        totals: Totals = {}
        cells = iter(self.cells)
        for name, _ in _TYPES[self.kind]:
            cell = next(cells)
            if name == "value":
                totals |= {"sum": _read(cell), "min": _read(next(cells)), "max": _read(next(cells))}
                totals["number"] = self.lives
            elif name == "count" or self.kind == INSTANCES:
                totals[name] = int(_read(cell) or 0)
            elif self.kind != "buckets":
                totals[name] = _read(cell)
        if self.kind in DISTRIBUTIONS and self.cells[1].terms < self.cells[0].terms:  # type: ignore[union-attr]
            totals["sum"] = None  # a life has a count and no sum
        return totals

    def row(self, metric: MetricId, ts_ms: int, offsets: Offsets) -> sums.Sum:
        """Return the row of `metrics-agg` of a metric whose partial sums include all lives, at the table's clock."""
        app, name, kind, tags = metric
        totals, overflow = saturated(self.totals())
        merged = None if self.merged is None or overflow else self.merged.total()
        if merged is not None:
            totals |= zip(QUANTILES, map(_rounded, merged.quantiles(_SHARES)), strict=True)
        row = sums.Sum(app=app, name=name, type=kind, tags=dict(tags), ts=ts_ms, offsets=offsets, **totals)  # type: ignore[arg-type]  # by type
        row.lives, row.instances, row.retired, row.overflow = self.lives, self.instances, self.forgotten, overflow
        if self.kind == "buckets" and not overflow:
            row.bounds, row.counts = self._buckets()
        if row.number and row.sum is not None and not overflow:
            row.mean = row.sum / row.number
        if merged is not None:
            row.sketch = msgspec.Raw(_encode(merged.encode()))
        return row

    def _buckets(self) -> tuple[list[float], list[int]]:
        """Return the bounds and the counts of explicit buckets. They are empty if a life counts and has none."""
        count, bounds, counts = self.cells
        if bounds.value is None or counts.terms < count.terms:  # type: ignore[union-attr]  # two are sums
            return [], []
        size = len(bounds.value)  # type: ignore[arg-type]  # bytes
        data = counts.integers.to_bytes(size + 8, "little")  # type: ignore[union-attr]
        return list(struct.unpack(f"<{size // 8}d", bounds.value)), list(struct.unpack(f"<{size // 8 + 1}Q", data))  # type: ignore[arg-type]

    def stored(self) -> _Stored:
        """Return the stored form. No extreme may be lost."""
        cells: list[Any] = [
            (c.terms, f"{c.integers:x}", c.floats, f"{c.units:x}") if isinstance(c, ExactSum) else c.value
            for c in self.cells
        ]
        merged, sketch = self.merged, None
        if merged is not None:
            sides = [(*side, found.runs()) for side, found in merged.not_empty().items()]
            sketch = (sides, f"{merged.zeros:x}", merged.missing)
        return self.kind, self.lives, self.instances, self.forgotten, cells, sketch

    @classmethod
    def of_stored(cls, stored: _Stored) -> PartialSum:
        """Return the partial sums of a stored form.

        Raises:
            ValueError, TypeError: it is not one.
        """
        kind, lives, instances, forgotten, cells, sketch = stored
        if kind not in _TYPES:
            raise ValueError(f"{kind!r} is not a type of metrics")
        partial = cls(kind)
        partial.lives, partial.instances, partial.forgotten = lives, instances, forgotten
        for cell, found in zip(partial.cells, cells, strict=True):
            if isinstance(cell, Extreme):
                cell.set(found)  # type: ignore[arg-type]
            else:
                terms, integers, floats, units = found  # type: ignore[misc]
                cell.merge(ExactSum(terms, int(integers, 16), floats, int(units, 16)))  # type: ignore[arg-type]
        if sketch is not None:
            if partial.merged is None:
                raise ValueError(f"a {kind} has no sketch")
            sides, zeros, partial.merged.missing = sketch
            partial.merged.zeros = int(zeros, 16)
            for scale, sign, runs in sides:
                partial.merged.add((scale, sign), runs)
        return partial


@lru_cache(maxsize=4096)
def _rounded(quantile: float) -> float:
    """Return a quantile with seven digits: more take room and mean nothing, as its error is 1 %."""
    return float(f"{quantile:.7g}")


def _read(cell: SumOrExtreme) -> int | float | None:
    return cell.value() if isinstance(cell, ExactSum) else cell.value


_Stored = tuple[
    str,
    int,
    int,
    int,
    list[tuple[int, str, int, str] | Value | bytes],
    tuple[list[tuple[int, int, tuple[record.Buckets, ...]]], str, int] | None,
]
"""(type, living lives, instances, forgotten lives, cells, merged sketch).

A cell is an extreme, or a sum as (terms, whole part, float terms, units). Numbers that may exceed 64 bits are in
hexadecimal. The sketch is (buckets by scale and sign, zeros, missing). Counts of buckets are modulo 2**64.
"""


def enc_hook(partial: Any) -> _Stored:
    """Return the stored form of partial sums, for msgspec's encoders."""
    return partial.stored()  # type: ignore[no-any-return]


def dec_hook(kind: type, stored: Any) -> Any:
    """Return partial sums of their stored form, for msgspec's decoders."""
    del kind
    return PartialSum.of_stored(msgspec.convert(stored, _Stored))


def is_kept(kind: str) -> bool:
    """Tell whether a type has values that stay in the sum when a life is forgotten. A gauge has none."""
    return any(field.adds != CURRENT for field in TYPES[kind])
