"""Every metric's partial, kept up to date: what lives had of it before a batch goes out, what they have now comes in.

Whoever changes a life says so first (`touch`), while its rows are still what they were.
"""

from __future__ import annotations

import logging
import operator
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tallystream_aggregator.table.arithmetic.partial_sums import Partial, Share, hold
from tallystream_aggregator.table.layouts import counts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tallystream_aggregator.table.disk import Disk
    from tallystream_aggregator.table.layouts import Layout, Layouts
    from tallystream_aggregator.table.state import Life, State

log = logging.getLogger(__name__)

Before = dict[int, Share | None]
"""The metric's number → the share that a life had when the batch began."""


class Partials:
    """The partials of all metrics of `state`, by number: of lives in memory, on disk and forgotten.

    What the lives on `disk` add up to is kept by itself, too, as a restart does not read them: `state.held`.
    """

    def __init__(self, state: State, disk: Disk, layouts: Layouts) -> None:
        self._state, self._disk, self._layouts = state, disk, layouts
        self._partials: dict[int, Partial] = {}
        self._on_disk: dict[int, Partial] = {}
        self._unheld: set[int] = set()
        self._before: dict[int, tuple[Life, Before]] = {}
        self._told: set[int] = set()
        self._shifts: dict[Layout, list[int]] = {}
        self._living: Counter[Layout] = Counter()  # by how many more lives, each of another instance, are living
        self._build()

    def __getitem__(self, number: int) -> Partial:
        """Return the partial of a metric, an empty one for a new metric."""
        return self._of(self._partials, number)

    def touch(self, life: Life, numbers: Iterable[int]) -> None:
        """Remember what a life has of these metrics, before that changes."""
        known = self._before.get(id(life))
        if known is None:
            known = self._before[id(life)] = (life, {})
        before = known[1]
        for number in numbers:
            if number not in before:
                before[number] = self._share(life, number)

    def set_living(self, life: Life, *, living: bool) -> None:
        """Let a life fall silent, or be living again.

        The counters in its blocks are not looked at one by one where its instance has no other life that matters: as
        many lives and instances more, or fewer, have each of them. So a fleet that falls silent is no long batch.
        """
        self.touch(life, life.rows)
        before = self._before[id(life)][1]
        alone = not any(
            other is not life and (other.living or id(other) in self._before)
            for other in self._state.lives.get(life.instance, ())
        )
        for block in life.blocks.values():
            layout = self._layouts.of(block)
            if alone and before.keys().isdisjoint(layout.places):
                self._living[layout] += 1 if living else -1
            else:
                self.touch(life, layout.counters)
        life.living = living

    def shift(self, life: Life, layout: Layout, differences: list[int]) -> None:
        """Take note that the counters of a block are about to grow by so much."""
        known = self._before.get(id(life))
        if known is not None and not known[1].keys().isdisjoint(layout.places):
            self.touch(life, layout.counters)  # what was remembered of some tells the difference
        elif layout in self._shifts:
            self._shifts[layout] = list(map(operator.add, self._shifts[layout], differences))
        else:
            self._shifts[layout] = differences

    def tell(self, numbers: Iterable[int]) -> None:
        """Have metrics published whether they change or not."""
        self._told.update(numbers)

    def retire(self, life: Life) -> None:
        """A life goes to disk: no sum changes."""
        for number, share in _kept_shares(life):
            self._of(self._on_disk, number).replace(None, share)
            self._unheld.add(number)

    def bring_back(self, life: Life) -> None:
        """A life comes from disk: no sum changes."""
        for number, share in _kept_shares(life):
            self._of(self._on_disk, number).take_back(share)
            self._unheld.add(number)

    def empty(self, life: Life, numbers: Iterable[int]) -> None:
        """Take note that a tombstone takes these metrics out of a life."""
        self.touch(life, numbers)
        for number in numbers:
            share = self._share(life, number)
            if number in self._on_disk and share is not None:
                self._on_disk[number].lose(share)
                self._unheld.add(number)

    def remove(self, number: int, gone: Partial) -> None:
        """Take out of a metric what forgotten lives have of it."""
        self[number].remove(gone)
        if number in self._on_disk:  # its extremes are bounds of what was on disk once
            self._on_disk[number].lose_extremes(gone)
            self._unheld.add(number)
        self._told.add(number)

    def forget(self, life: Life) -> None:
        """A life that was on disk is forgotten: what it keeps stays in the sums, and counts as forgotten."""
        self.bring_back(life)
        for number in life.rows:
            self[number].forgotten += 1
        self.tell(life.rows)

    def settle(self) -> set[int]:
        """Bring the partials up to date; return the metrics that were touched or told, and forget these."""
        touched = set(self._told)
        for layout, differences in self._shifts.items():
            touched.update(layout.counters)
            for number, difference in zip(layout.counters, differences, strict=True):
                self._partials[number].grow(difference)
        for layout, more in self._living.items():
            touched.update(layout.counters)
            for number in layout.counters:
                self._partials[number].lives += more
                self._partials[number].instances += more
        self._shifts, self._living = {}, Counter()
        crowded: dict[str, list[tuple[Life, Before]]] = defaultdict(list)
        for life, before in self._before.values():
            for number, old in before.items():
                self[number].replace(old, self._share(life, number))
            touched |= before.keys()
            crowded[life.instance].append((life, before))
        for instance, lives in crowded.items():
            self._count(instance, lives)
        self._before, self._told = {}, set()
        self._look({number for number in touched if self[number].lost})
        return touched

    def hold(self) -> set[int]:
        """Bring `state.held` up to date; return the metrics of which it has changed."""
        changed, self._unheld = self._unheld, set()
        self._state.held.update((number, hold(self._on_disk[number])) for number in changed)
        return changed

    def _of(self, partials: dict[int, Partial], number: int) -> Partial:
        partial = partials.get(number)
        if partial is None:
            partial = partials[number] = Partial(self._state.metrics[number][2])
        return partial

    def _count(self, instance: str, touched: list[tuple[Life, Before]]) -> None:
        """Count the instance once, however many of its lives have the metric."""
        ids = {id(life) for life, _ in touched}
        others = [life for life in self._state.lives.get(instance, ()) if id(life) not in ids]
        for number in {number for _, before in touched for number in before}:
            shares = [self._share(life, number) for life in others]
            was = [before.get(number) for _, before in touched]
            untouched = [self._share(life, number) for life, before in touched if number not in before]
            now = [self._share(life, number) for life, before in touched if number in before]
            self[number].instances += _any([*shares, *untouched, *now]) - _any([*shares, *untouched, *was])

    def _look(self, numbers: set[int]) -> None:
        """Find extremes that are lost: among the lives on disk only where a tombstone may have taken theirs."""
        if not numbers:
            return
        kept = {number for number in numbers if self[number].lost_lasting}
        self._look_on_disk({number for number in kept if number in self._on_disk and self._on_disk[number].lost})
        for number, shares in _shares(self._in_memory(), numbers).items():
            others = []
            if number in kept:
                base = self._state.base.get(number)
                others += [base.held.partial(self[number].kind)] if base is not None else []
                others += [self._on_disk[number]] if number in self._on_disk else []
            self[number].look(shares, others)

    def _look_on_disk(self, numbers: set[int]) -> None:
        if not numbers:
            return
        log.info("the extremes of %d metrics are looked for among %d lives on disk", len(numbers), len(self._disk))
        found = {number: Partial(self._on_disk[number].kind) for number in numbers}
        for life in self._disk:
            for number, share in _kept_shares(life):
                if number in numbers:
                    found[number].replace(None, share)
        for number, partial in found.items():
            self._on_disk[number].look((), [partial])
            self._unheld.add(number)

    def _build(self) -> None:
        state = self._state
        for number, held in state.held.items():
            self._on_disk[number] = held.partial(state.metrics[number][2])
            self[number].merge(self._on_disk[number])
        for number, base in state.base.items():
            self[number].merge(base.held.partial(state.metrics[number][2]))
            self[number].forgotten += base.lives
        for life in self._in_memory():
            for number in life.rows:
                self[number].replace(None, self._share(life, number))
        for leaving in state.leaving:
            for number in leaving.life.rows:
                self[number].forgotten += 1
        self._build_blocks()
        self._build_instances()

    def _build_instances(self) -> None:
        alone: Counter[Layout] = Counter()
        for lives in self._state.lives.values():
            living = [life for life in lives if life.living]
            if len(living) == 1:
                alone.update(map(self._layouts.of, living[0].blocks.values()))
                current = {number for number, row in living[0].rows.items() if living[0].current(row)}
            else:
                every = {number for life in living for number in self._layouts.numbers(life)}
                current = {number for number in every if _any(self._share(life, number) for life in living)}
            for number in current:
                self[number].instances += 1
        for layout, instances in alone.items():
            for number in layout.counters:
                self[number].instances += instances

    def _build_blocks(self) -> None:
        sums: dict[Layout, list[int]] = {}
        lives: Counter[Layout] = Counter()
        living: Counter[Layout] = Counter()
        for life in self._in_memory():
            for block in life.blocks.values():
                layout = self._layouts.of(block)
                block.metrics = layout.packed  # one copy for all
                known, counts = sums.get(layout), counts_of(block)
                sums[layout] = list(counts) if known is None else list(map(operator.add, known, counts))
                lives[layout] += 1
                living[layout] += life.living
        for layout, totals in sums.items():
            for number, total in zip(layout.counters, totals, strict=True):
                self[number].grow(total, lives[layout], living[layout])

    def _share(self, life: Life, number: int) -> Share | None:
        row = self._layouts.row(life, number)
        return None if row is None else Share(row.values, life.current(row), row.sketch)

    def _in_memory(self) -> Iterator[Life]:
        for lives in self._state.lives.values():
            yield from lives
        for leaving in self._state.leaving:
            yield leaving.life


def _kept_shares(life: Life) -> Iterator[tuple[int, Share]]:
    """Yield what a life has that is not momentary."""
    for number, row in life.rows.items():
        yield number, Share(row.values, current=False, sketch=row.sketch)


def _shares(lives: Iterable[Life], numbers: set[int]) -> dict[int, list[Share]]:
    found: dict[int, list[Share]] = {number: [] for number in numbers}
    for life in lives:
        for number in numbers & life.rows.keys():
            row = life.rows[number]
            found[number].append(Share(row.values, life.current(row), row.sketch))
    return found


def _any(shares: Iterable[Share | None]) -> bool:
    return any(share is not None and share.current for share in shares)
