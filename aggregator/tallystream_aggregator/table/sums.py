"""The partial sums of every metric, updated by the differences that a batch makes.

A caller marks a life dirty (`mark_dirty`) before it changes the life's rows.
"""

from __future__ import annotations

import logging
import operator
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tallystream_aggregator.table.arithmetic.partial_sums import Contribution, Partial, hold
from tallystream_aggregator.table.layouts import counts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tallystream_aggregator.table.disk import Disk
    from tallystream_aggregator.table.layouts import Layout, Layouts
    from tallystream_aggregator.table.state import Life, State

log = logging.getLogger(__name__)

Before = dict[int, Contribution | None]
"""The metric's number → the contribution of a life when the batch began."""


class Partials:
    """The partial sums of all metrics of `state`, by number: of lives in memory, on disk and forgotten.

    The partial sums of the lives on `disk` are also stored separately, in `state.held`: a restart does not read these
    lives.
    """

    def __init__(self, state: State, disk: Disk, layouts: Layouts) -> None:
        self._state, self._disk, self._layouts = state, disk, layouts
        self._partials: dict[int, Partial] = {}
        self._on_disk: dict[int, Partial] = {}
        self._unheld: set[int] = set()
        self._before: dict[int, tuple[Life, Before]] = {}
        self._forced: set[int] = set()
        self._shifts: dict[Layout, list[int]] = {}
        self._living: Counter[Layout] = Counter()  # by how many more lives, each of another instance, are living
        self._build()

    def __getitem__(self, number: int) -> Partial:
        """Return the partial sums of a metric, empty ones for a new metric."""
        return self._of(self._partials, number)

    def mark_dirty(self, life: Life, numbers: Iterable[int]) -> None:
        """Remember the contribution of a life to these metrics, before it changes."""
        known = self._before.get(id(life))
        if known is None:
            known = self._before[id(life)] = (life, {})
        before = known[1]
        for number in numbers:
            if number not in before:
                before[number] = self._contribution(life, number)

    def set_living(self, life: Life, *, living: bool) -> None:
        """Mark a life as living or silent.

        If no other life of its instance is living or dirty, the counters in its blocks are not visited one by one: the
        numbers of lives and instances of the whole layout change by one. So a fleet that falls silent at once does not
        make a long batch.
        """
        self.mark_dirty(life, life.rows)
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
                self.mark_dirty(life, layout.counters)
        life.living = living

    def shift(self, life: Life, layout: Layout, differences: list[int]) -> None:
        """Note that the counters of a block are about to grow by `differences`."""
        known = self._before.get(id(life))
        if known is not None and not known[1].keys().isdisjoint(layout.places):
            self.mark_dirty(life, layout.counters)  # some counters are dirty already: `flush` compares all of them
        elif layout in self._shifts:
            self._shifts[layout] = list(map(operator.add, self._shifts[layout], differences))
        else:
            self._shifts[layout] = differences

    def force_publish(self, numbers: Iterable[int]) -> None:
        """Publish these metrics with this batch, whether they change or not."""
        self._forced.update(numbers)

    def retire(self, life: Life) -> None:
        """Move the contributions of a life from memory to disk. No sum changes."""
        for number, contribution in _lasting_contributions(life):
            self._of(self._on_disk, number).replace(None, contribution)
            self._unheld.add(number)

    def bring_back(self, life: Life) -> None:
        """Move the contributions of a life from disk to memory. No sum changes."""
        for number, contribution in _lasting_contributions(life):
            self._of(self._on_disk, number).subtract(contribution)
            self._unheld.add(number)

    def empty(self, life: Life, numbers: Iterable[int]) -> None:
        """Note that a tombstone is about to remove these metrics from a life."""
        self.mark_dirty(life, numbers)
        for number in numbers:
            contribution = self._contribution(life, number)
            if number in self._on_disk and contribution is not None:
                self._on_disk[number].lose(contribution)
                self._unheld.add(number)

    def remove(self, number: int, gone: Partial) -> None:
        """Subtract the sums of forgotten lives from a metric."""
        self[number].remove(gone)
        if number in self._on_disk:  # the extremes on disk may be those of forgotten lives
            self._on_disk[number].lose_extremes(gone)
            self._unheld.add(number)
        self._forced.add(number)

    def forget(self, life: Life) -> None:
        """Forget a life that was on disk: its contributions stay in the sums and count as forgotten."""
        self.bring_back(life)
        for number in life.rows:
            self[number].forgotten += 1
        self.force_publish(life.rows)

    def flush(self) -> set[int]:
        """Apply all noted changes. Return the metrics that may have changed or were forced."""
        touched = set(self._forced)
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
                self[number].replace(old, self._contribution(life, number))
            touched |= before.keys()
            crowded[life.instance].append((life, before))
        for instance, lives in crowded.items():
            self._count(instance, lives)
        self._before, self._forced = {}, set()
        self._rescan({number for number in touched if self[number].lost})
        return touched

    def hold(self) -> set[int]:
        """Update `state.held`, and return the metrics whose entry has changed."""
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
            contributions = [self._contribution(life, number) for life in others]
            was = [before.get(number) for _, before in touched]
            untouched = [self._contribution(life, number) for life, before in touched if number not in before]
            now = [self._contribution(life, number) for life, before in touched if number in before]
            self[number].instances += _any([*contributions, *untouched, *now]) - _any(
                [*contributions, *untouched, *was]
            )

    def _rescan(self, numbers: set[int]) -> None:
        """Find lost extremes again. Lives on disk are read only if a tombstone may have removed theirs."""
        if not numbers:
            return
        kept = {number for number in numbers if self[number].lost_lasting}
        self._rescan_disk({number for number in kept if number in self._on_disk and self._on_disk[number].lost})
        for number, contributions in _contributions(self._in_memory(), numbers).items():
            others = []
            if number in kept:
                forgotten_sums = self._state.forgotten_sums.get(number)
                others += [forgotten_sums.held.partial(self[number].kind)] if forgotten_sums is not None else []
                others += [self._on_disk[number]] if number in self._on_disk else []
            self[number].rescan(contributions, others)

    def _rescan_disk(self, numbers: set[int]) -> None:
        if not numbers:
            return
        log.info("reading %d lives on disk to find the extremes of %d metrics again", len(self._disk), len(numbers))
        found = {number: Partial(self._on_disk[number].kind) for number in numbers}
        for life in self._disk:
            for number, contribution in _lasting_contributions(life):
                if number in numbers:
                    found[number].replace(None, contribution)
        for number, partial in found.items():
            self._on_disk[number].rescan((), [partial])
            self._unheld.add(number)

    def _build(self) -> None:
        state = self._state
        for number, held in state.held.items():
            self._on_disk[number] = held.partial(state.metrics[number][2])
            self[number].merge(self._on_disk[number])
        for number, forgotten_sums in state.forgotten_sums.items():
            self[number].merge(forgotten_sums.held.partial(state.metrics[number][2]))
            self[number].forgotten += forgotten_sums.lives
        for life in self._in_memory():
            for number in life.rows:
                self[number].replace(None, self._contribution(life, number))
        for retiring in state.retiring:
            for number in retiring.life.rows:
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
                current = {number for number in every if _any(self._contribution(life, number) for life in living)}
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

    def _contribution(self, life: Life, number: int) -> Contribution | None:
        row = self._layouts.row(life, number)
        return None if row is None else Contribution(row.values, life.current(row), row.sketch)

    def _in_memory(self) -> Iterator[Life]:
        for lives in self._state.lives.values():
            yield from lives
        for retiring in self._state.retiring:
            yield retiring.life


def _lasting_contributions(life: Life) -> Iterator[tuple[int, Contribution]]:
    """Yield the contributions of a life without their momentary values."""
    for number, row in life.rows.items():
        yield number, Contribution(row.values, current=False, sketch=row.sketch)


def _contributions(lives: Iterable[Life], numbers: set[int]) -> dict[int, list[Contribution]]:
    found: dict[int, list[Contribution]] = {number: [] for number in numbers}
    for life in lives:
        for number in numbers & life.rows.keys():
            row = life.rows[number]
            found[number].append(Contribution(row.values, life.current(row), row.sketch))
    return found


def _any(contributions: Iterable[Contribution | None]) -> bool:
    return any(contribution is not None and contribution.current for contribution in contributions)
