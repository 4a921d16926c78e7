"""Which lives have a metric, so that a change of a metric visits these and no others."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tallystream_aggregator.table.state import Life

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tallystream_aggregator.table.layouts import Layout, Layouts

FEW = 8
"""Up to so many items are a list, which takes a third of the memory of a set. Most metrics have one or two."""


class _Sharing:
    """The lives of one partition that have a block of the same layout."""

    __slots__ = ("lives",)

    def __init__(self) -> None:
        self.lives: set[Life] = set()


_Item = Life | _Sharing
_Items = dict[int, list[_Item] | set[_Item]]
"""The metric's number → the lives that have a row of it, and one item for each layout of blocks that have it."""


class Holders:
    """The lives that have each metric, by their partition: in a row, or in a block."""

    def __init__(self, lives: Iterable[Life], layouts: Layouts) -> None:
        self._partitions: dict[str, _Items] = defaultdict(dict)
        self._sharing: dict[tuple[str, bytes, bool], _Sharing] = {}
        self._layouts = layouts
        for life in lives:
            self.add_all(life)

    def add_rows(self, life: Life, numbers: Iterable[int]) -> None:
        """Note that a life has rows of these metrics."""
        self._add(life.partition, numbers, life)

    def remove_rows(self, life: Life, numbers: Iterable[int]) -> None:
        """Note that a life no longer has rows of these metrics."""
        self._remove(life.partition, numbers, life)

    def add_block(self, life: Life, layout: Layout) -> None:
        """Note that a life has a block of this layout."""
        key = life.partition, layout.packed, layout.has_columns
        sharing = self._sharing.get(key)
        if sharing is None:
            sharing = self._sharing[key] = _Sharing()
            self._add(life.partition, layout.counted, sharing)
        sharing.lives.add(life)

    def remove_block(self, life: Life, layout: Layout) -> None:
        """Note that a life no longer has a block of this layout."""
        key = life.partition, layout.packed, layout.has_columns
        sharing = self._sharing[key]
        sharing.lives.remove(life)
        if not sharing.lives:
            self._remove(life.partition, layout.counted, self._sharing.pop(key))

    def add_all(self, life: Life) -> None:
        """Add all metrics of a life."""
        self.add_rows(life, life.rows)
        for block in life.blocks.values():
            self.add_block(life, self._layouts.layout_for(block))

    def remove_all(self, life: Life) -> None:
        """Remove all metrics of a life, which may then be added again with another partition."""
        self.remove_rows(life, life.rows)
        for block in life.blocks.values():
            self.remove_block(life, self._layouts.layout_for(block))

    def of(self, number: int, partition: str | None = None) -> Iterator[Life]:
        """Yield the lives that have the metric, those of one partition or all."""
        for name in self._partitions if partition is None else (partition,):
            for item in self._partitions[name].get(number, ()):
                if isinstance(item, Life):
                    yield item
                else:
                    yield from item.lives

    def among(self, numbers: set[int], partition: str) -> set[int]:
        """Return those of `numbers` that a life of the partition has."""
        return self._partitions[partition].keys() & numbers

    def has(self, number: int) -> bool:
        """Tell whether a life has the metric."""
        return any(number in items for items in self._partitions.values())

    def count(self, number: int) -> int:
        """Return how many lives have the metric."""
        found = (item for items in self._partitions.values() for item in items.get(number, ()))
        return sum(1 if isinstance(item, Life) else len(item.lives) for item in found)

    def _add(self, partition: str, numbers: Iterable[int], item: _Item) -> None:
        """Add an item that none of the metrics has."""
        found = self._partitions[partition]
        for number in numbers:
            items = found.get(number)
            if items is None:
                found[number] = [item]
            elif isinstance(items, set):
                items.add(item)
            elif len(items) < FEW:
                items.append(item)
            else:
                found[number] = {*items, item}

    def _remove(self, partition: str, numbers: Iterable[int], item: _Item) -> None:
        found = self._partitions[partition]
        for number in numbers:
            items = found[number]
            items.remove(item)
            if not items:
                del found[number]
