"""Which lives have a metric, so that a change of a metric visits these and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from tallystream_aggregator.table.state import Life

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tallystream_aggregator.table.layouts import Layout, Layouts

T = TypeVar("T")

FEW = 8
"""Up to so many items are a list, which takes a third of the memory of a set. Most metrics have one or two."""


class _Items(Generic[T]):
    """Items by the number of a metric, each once."""

    def __init__(self) -> None:
        self._found: dict[int, list[T] | set[T]] = {}

    def __getitem__(self, number: int) -> Collection[T]:
        return self._found.get(number, ())

    def among(self, numbers: set[int]) -> set[int]:
        """Return those of `numbers` that have an item."""
        return self._found.keys() & numbers

    def add(self, number: int, item: T) -> None:
        """Add an item that the metric does not have."""
        items = self._found.get(number)
        if items is None:
            self._found[number] = [item]
        elif isinstance(items, set):
            items.add(item)
        elif len(items) < FEW:
            items.append(item)
        else:
            self._found[number] = {*items, item}

    def remove(self, number: int, item: T) -> None:
        """Remove an item of the metric."""
        items = self._found[number]
        items.remove(item)
        if not items:
            del self._found[number]


class _Partition:
    """The lives of one partition that have each metric. All lives with a block of the same layout are one entry."""

    def __init__(self) -> None:
        self.rows = _Items[Life]()
        self._layouts = _Items[bytes]()  # those of the blocks that have the metric
        self._blocks: dict[bytes, set[Life]] = {}

    def add_block(self, life: Life, layout: Layout) -> None:
        """Add a life to those that have a block of this layout. A block without counters has no entry."""
        if not layout.counters:
            return
        lives = self._blocks.get(layout.packed)
        if lives is None:
            lives = self._blocks[layout.packed] = set()
            for number in layout.counters:
                self._layouts.add(number, layout.packed)
        lives.add(life)

    def remove_block(self, life: Life, layout: Layout) -> None:
        """Remove a life from those that have a block of this layout."""
        if not layout.counters:
            return
        lives = self._blocks[layout.packed]
        lives.remove(life)
        if not lives:
            del self._blocks[layout.packed]
            for number in layout.counters:
                self._layouts.remove(number, layout.packed)

    def has(self, number: int) -> bool:
        """Tell whether a life has the metric."""
        return bool(self.rows[number] or self._layouts[number])

    def among(self, numbers: set[int]) -> set[int]:
        """Return those of `numbers` that a life has."""
        return self.rows.among(numbers) | self._layouts.among(numbers)

    def blocks(self, number: int) -> list[set[Life]]:
        """Return the lives that have the metric in a block, as one set for each layout."""
        return [self._blocks[layout] for layout in self._layouts[number]]


class Holders:
    """The lives that have each metric, by their partition: in a row, or in a block."""

    def __init__(self, lives: Iterable[Life], layouts: Layouts) -> None:
        self._partitions: dict[str, _Partition] = {}
        self._layouts = layouts
        for life in lives:
            self.add_all(life)

    def add_rows(self, life: Life, numbers: Iterable[int]) -> None:
        """Note that a life has rows of these metrics."""
        rows = self._of(life).rows
        for number in numbers:
            rows.add(number, life)

    def remove_rows(self, life: Life, numbers: Iterable[int]) -> None:
        """Note that a life no longer has rows of these metrics."""
        rows = self._of(life).rows
        for number in numbers:
            rows.remove(number, life)

    def add_block(self, life: Life, layout: Layout) -> None:
        """Note that a life has a block of this layout."""
        self._of(life).add_block(life, layout)

    def remove_block(self, life: Life, layout: Layout) -> None:
        """Note that a life no longer has a block of this layout."""
        self._of(life).remove_block(life, layout)

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
        for found in self._some(partition):
            yield from found.rows[number]
            for lives in found.blocks(number):
                yield from lives

    def among(self, numbers: set[int], partition: str) -> set[int]:
        """Return those of `numbers` that a life of the partition has."""
        return set().union(*(found.among(numbers) for found in self._some(partition)))

    def with_row(self, number: int) -> Iterator[Life]:
        """Yield the lives that have a row of the metric."""
        for found in self._partitions.values():
            yield from found.rows[number]

    def has(self, number: int) -> bool:
        """Tell whether a life has the metric."""
        return any(found.has(number) for found in self._partitions.values())

    def count(self, number: int) -> int:
        """Return how many lives have the metric."""
        found = 0
        for one in self._partitions.values():
            found += len(one.rows[number]) + sum(map(len, one.blocks(number)))
        return found

    def _of(self, life: Life) -> _Partition:
        found = self._partitions.get(life.partition)
        if found is None:
            found = self._partitions[life.partition] = _Partition()
        return found

    def _some(self, partition: str | None) -> Iterable[_Partition]:
        if partition is None:
            return self._partitions.values()
        return [self._partitions[partition]] if partition in self._partitions else []
