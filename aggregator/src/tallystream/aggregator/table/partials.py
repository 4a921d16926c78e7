"""Every metric's partial, kept up to date: what lives had of it before a batch goes out, what they have now comes in.

Whoever changes a life says so first (`touch`), while its rows are still what they were.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tallystream.aggregator.table.partial import Partial, Share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tallystream.aggregator.table.state import Life, State

Before = dict[int, Share | None]
"""The metric's number → the share that a life had when the batch began."""


class Partials:
    """The partials of all metrics of `state`, by number."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._partials: dict[int, Partial] = {}
        self._before: dict[int, tuple[Life, Before]] = {}
        self._told: set[int] = set()
        self._build()

    def __getitem__(self, number: int) -> Partial:
        """Return the partial of a metric, an empty one for a new metric."""
        partial = self._partials.get(number)
        if partial is None:
            partial = self._partials[number] = Partial(self._state.metrics[number][2])
        return partial

    def touch(self, life: Life, numbers: Iterable[int]) -> None:
        """Remember what a life has of these metrics, before that changes."""
        known = self._before.get(id(life))
        if known is None:
            known = self._before[id(life)] = (life, {})
        before = known[1]
        for number in numbers:
            if number not in before:
                before[number] = _share(life, number)

    def tell(self, numbers: Iterable[int]) -> None:
        """Have metrics published whether they change or not."""
        self._told.update(numbers)

    def left(self, life: Life) -> None:
        """A life has retired: what it keeps counts as retired, and soon as the base's."""
        for number in life.rows:
            self[number].leaving += 1

    def absorbed(self, life: Life) -> None:
        """The base takes in what a life has kept."""
        for number in life.rows:
            partial = self[number]
            partial.leaving -= 1
            partial.replace(_share(life, number), None)

    def settle(self) -> set[int]:
        """Bring the partials up to date; return the metrics that were touched or told, and forget these."""
        touched = set(self._told)
        crowded: dict[str, list[tuple[Life, Before]]] = defaultdict(list)
        for life, before in self._before.values():
            for number, old in before.items():
                self[number].replace(old, _share(life, number))
            touched |= before.keys()
            crowded[life.instance].append((life, before))
        for instance, lives in crowded.items():
            self._count(instance, lives)
        self._before, self._told = {}, set()
        self._look({number for number in touched if self[number].lost})
        return touched

    def _count(self, instance: str, touched: list[tuple[Life, Before]]) -> None:
        """Count the instance once, however many of its lives have the metric."""
        ids = {id(life) for life, _ in touched}
        others = [life for life in self._state.lives.get(instance, ()) if id(life) not in ids]
        for number in {number for _, before in touched for number in before}:
            shares = [share for share in (_share(life, number) for life in others) if share is not None]
            was = [before[number] for _, before in touched if before.get(number) is not None]
            untouched = [_share(life, number) for life, before in touched if number not in before]
            now = [_share(life, number) for life, before in touched if number in before]
            self[number].instances += _any([*shares, *untouched, *now]) - _any([*shares, *untouched, *was])

    def _look(self, numbers: set[int]) -> None:
        if not numbers:
            return
        found: dict[int, list[Share]] = {number: [] for number in numbers}
        for life in self._all():
            for number in numbers & life.rows.keys():
                share = _share(life, number)
                if share is not None:
                    found[number].append(share)
        for number, shares in found.items():
            self[number].look(shares)

    def _build(self) -> None:
        for life in self._all():
            for number in life.rows:
                self[number].replace(None, _share(life, number))
        for leaving in self._state.leaving:
            self.left(leaving.life)
        for lives in self._state.lives.values():
            for number in {number for life in lives for number in life.rows}:
                self[number].instances += _any(_share(life, number) for life in lives)

    def _all(self) -> Iterator[Life]:
        for lives in self._state.lives.values():
            yield from lives
        for leaving in self._state.leaving:
            yield leaving.life


def _share(life: Life, number: int) -> Share | None:
    row = life.rows.get(number)
    return None if row is None else Share(row.values, life.current(row), row.sketch)


def _any(shares: Iterable[Share | None]) -> bool:
    return any(share is not None and share.current for share in shares)
