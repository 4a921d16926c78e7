"""The partial sums of every metric of a shard, updated by differences.

Before a caller changes the rows of a life, it says so (`will_change`).
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tallystream_aggregator.table.arithmetic.distributions import Replacements
from tallystream_aggregator.table.arithmetic.partial_sums import Contribution, PartialSum, is_kept
from tallystream_aggregator.table.arithmetic.values import is_above, since_baseline
from tallystream_aggregator.table.layouts import counts_of
from tallystream_aggregator.table.lives import FEW_LIVES
from tallystream_aggregator.table.sum_tags import SumNumbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tallystream_aggregator.table.arithmetic.distributions import Distributions
    from tallystream_aggregator.table.arithmetic.partial_sums import Change
    from tallystream_aggregator.table.arithmetic.values import Stored
    from tallystream_aggregator.table.holders import Holders
    from tallystream_aggregator.table.layouts import Layout, Layouts
    from tallystream_aggregator.table.lives import Lives
    from tallystream_aggregator.table.state import Life, Row, State

MAX_WAITING = 20_000
"""The most changed rows that wait for the end of a step: each keeps the sketch that is replaced."""

Before = dict[int, Contribution | None]
"""The metric's number → the contribution of a life when the sums were last taken."""


class MetricSums:
    """The partial sums of all metrics of `state`, by number: of all lives and the forgotten ones.

    Metrics that have one sum share its partial sums: `numbers` has the number of each metric's sum.
    """

    def __init__(self, state: State, layouts: Layouts, lives: Lives, holders: Holders) -> None:
        self._state, self._layouts, self._lives, self._holders = state, layouts, lives, holders
        self.numbers = SumNumbers(state.metrics, state.sum_tags)
        self._partials: dict[int, PartialSum] = {}
        self._before: dict[str, dict[int, tuple[Life, Before]]] = {}  # by instance
        self._changed: set[int] = set()
        self._waiting: defaultdict[tuple[int, ...], list[Iterable[Change]]] = defaultdict(list)
        self._number_waiting = 0  # of these changes
        self._together: dict[int, tuple[int, ...] | None] = {}  # by the ID of a life, if anything of it waits
        self._replacements: dict[Layout, Replacements] = {}
        self._differences: dict[Layout, list[int]] = {}
        self._added: Counter[Layout] = Counter()  # lives among them that are new
        self._living: Counter[Layout] = Counter()  # the change of the number of living lives and instances
        self._build()

    def drop(self, number: int) -> None:
        """Drop a metric that no life and no forgotten sum has."""
        of = self.numbers.of(number)
        if number != of:
            self._partials.pop(number, None)
        self._partials.pop(self.numbers.drop(number), None)

    def __getitem__(self, number: int) -> PartialSum:
        """Return the partial sums of a metric's sum, empty ones for a new sum."""
        partial = self._partials.get(number)
        if partial is None:
            of = self.numbers.of(number)
            partial = self._partials.get(of)
            if partial is None:
                partial = self._partials[of] = PartialSum(self._state.metrics[of][2])
            self._partials[number] = partial
        return partial

    def will_change(self, life: Life, numbers: Iterable[int]) -> None:
        """Keep the present contribution of a life to these metrics. Call it before the life's rows change."""
        before = self._before.setdefault(life.instance, {}).setdefault(id(life), (life, {}))[1]
        for number in numbers:
            if number not in before:
                before[number] = self._contribution(life, number)

    def replace_current(
        self, life: Life, numbers: tuple[int, ...], old: Sequence[Stored], new: Sequence[Stored]
    ) -> None:
        """Replace the values of rows that are about to change, and that are current before and after if the life lives.

        So neither lives nor instances are counted again, and all changes of several rows, or of a sketch, are made
        together.
        """
        if life.baselines or not life.living or id(life) in self._before.get(life.instance, ()):
            self.will_change(life, numbers)  # `flush` compares them
            return
        (before, sketch), (after, new_sketch) = old[0], new[0]
        if len(numbers) == 1 and sketch is new_sketch is None and id(life) not in self._together:
            self[numbers[0]].replace(Contribution(before, current=True), Contribution(after, current=True))
            self._changed.update(numbers)
            return
        self._wait_for(len(numbers))
        together = numbers if len(numbers) > 1 else None
        if self._together.setdefault(id(life), together) != together:  # the changes of a row are made in their order
            self._apply_waiting()
            self._together[id(life)] = together
        self._waiting[numbers].append(zip(old, new, strict=True))

    def set_living(self, life: Life, *, living: bool) -> None:
        """Mark a life as living or silent.

        If no other life of its instance is living or changes, the numbers of lives and instances of whole layouts
        change by one, and their counters are not visited. So a step in which many instances fall silent stays short.
        """
        self.will_change(life, life.rows)
        layouts = [self._layouts.layout_for(block) for block in life.blocks.values()]
        if self._is_alone(life, layouts):
            for layout, block in zip(layouts, life.blocks.values(), strict=True):
                self._living[layout] += 1 if living else -1
                if block.distributions is not None:
                    self._replacements_of(layout).set_living(block.distributions, living=living)
        else:
            for layout in layouts:
                self.will_change(life, layout.counted)
        self._lives.set_living(life, living=living)

    def _is_alone(self, life: Life, layouts: Iterable[Layout]) -> bool:
        """Tell whether no other life of its instance is living or changes, nor a metric of these layouts."""
        changing = self._before.get(life.instance, {})
        before = changing[id(life)][1] if id(life) in changing else {}
        return (
            changing.keys() <= {id(life)}
            and len(self._lives.living(life.instance)) == life.living
            and not self.numbers.are_shared
            and all(before.keys().isdisjoint(layout.index_of) for layout in layouts)
        )

    def add_block(self, life: Life, layout: Layout, counts: list[int]) -> None:
        """Add the counters of a life that is about to get its first block, and has none of these metrics."""
        if self._is_alone(life, (layout,)):
            self._added[layout] += 1
            self._living[layout] += life.living
            self.replace_block(life, layout, counts)
        else:
            self.will_change(life, layout.counted)

    def replace_block(
        self,
        life: Life,
        layout: Layout,
        differences: list[int],
        old: Distributions | None = None,
        new: Distributions | None = None,
    ) -> None:
        """Add `differences` to the counts of a block that is about to be replaced, and replace its distributions."""
        changing = self._before.get(life.instance)
        known = None if changing is None else changing.get(id(life))
        is_changing = known is not None and not known[1].keys().isdisjoint(layout.index_of)
        if is_changing or (life.baselines and self._is_below_baseline(life, layout)):
            self.will_change(life, layout.counted)  # `flush` compares all of them
            return
        waiting = self._differences.get(layout)
        self._differences[layout] = differences if waiting is None else list(map(operator.add, waiting, differences))
        if new is not None:
            self._replacements_of(layout).replace(old, new, living=life.living)

    def _replacements_of(self, layout: Layout) -> Replacements:
        """Return the replacements of a layout's columns, for one that will wait there."""
        self._wait_for(len(layout.distributions))
        found = self._replacements.get(layout)
        if found is None:
            assert layout.columns is not None
            found = self._replacements[layout] = Replacements(layout.columns)
        return found

    def _is_below_baseline(self, life: Life, layout: Layout) -> bool:
        """Tell whether a counter of a block is below its baseline: it contributes nothing, whatever it counts."""
        for number in life.baselines.keys() & layout.index_of.keys():
            row = self._layouts.row(life, number)
            if row is not None and is_above(life.baselines[number], row.values):
                return True
        return False

    def mark_changed(self, numbers: Iterable[int]) -> None:
        """Have the next `flush` return these metrics, whether they change or not."""
        self._changed.update(numbers)

    def subtract_forgotten(self, number: int, removed: PartialSum) -> None:
        """Subtract the partial sums of forgotten lives, `removed`, from a metric."""
        self[number].merge(removed, -1)
        self._changed.add(number)

    def forget(self, lives: Iterable[Life]) -> set[int]:
        """Add the contributions of removed lives without blocks to the forgotten sums, without their momentary values.

        Call `apply_changes` before they are removed. Return the metrics of which there are any.
        """
        state, forgotten = self._state, set[int]()
        for life in lives:
            self.will_change(life, life.rows)
            life.living = False
            for number, row in life.rows.items():
                kind = state.metrics[number][2]
                if not is_kept(kind):
                    continue
                partial = state.forgotten_sums.get(number)
                if partial is None:
                    partial = state.forgotten_sums[number] = PartialSum(kind)
                forgotten.add(number)
                partial.replace(None, self._contribution_of(life, number, row)._replace(current=False))
                partial.forgotten += 1
                self[number].forgotten += 1
        self.mark_changed(forgotten)
        self.apply_changes()
        return forgotten

    def apply_changes(self) -> None:
        """Apply all changes now. The next `flush` returns them, too."""
        self._changed = self.flush()

    def flush(self) -> set[int]:
        """Apply all changes. Return the numbers of the sums that may have changed or have to be published."""
        self._apply_waiting()
        changed = set(self._changed)
        for layout, differences in self._differences.items():
            changed.update(layout.counted)
            for number, difference in zip(layout.counted, differences, strict=True):
                self[number].add_to_count(difference, self._added[layout])
        for layout, more in self._living.items():
            changed.update(layout.counted)
            for number in layout.counted:
                self[number].lives += more
                self[number].instances += more
        self._differences, self._added, self._living = {}, Counter(), Counter()
        for instance, changing in self._before.items():
            changed.update(*(before for _, before in changing.values()))  # `|=` would copy the set
            self._replace_changed(instance, changing)
        self._before, self._changed = {}, set()
        sums = self.numbers.of_all(changed)
        self._rescan({number for number in sums if self[number].lost})
        return sums

    def _wait_for(self, more: int) -> None:
        """Count so many changes that will wait. If these are too many, apply those that wait already."""
        if self._number_waiting + more > MAX_WAITING:
            self._apply_waiting()
        self._number_waiting += more

    def _apply_waiting(self) -> None:
        """Apply the changes of rows that stay current, and of columns."""
        for numbers, waiting in self._waiting.items():
            self._changed.update(numbers)
            for number, changes in zip(numbers, zip(*waiting, strict=True), strict=True):
                self[number].replace_all(changes)
        for layout, replacements in self._replacements.items():
            replacements.apply([self[number] for number in layout.distributions])
        self._replacements = {}
        self._waiting.clear()
        self._together.clear()
        self._number_waiting = 0

    def _replace_changed(self, instance: str, changing: dict[int, tuple[Life, Before]]) -> None:
        """Replace the contributions of an instance's lives, and count it once for each sum with a current one."""
        of, was, now = self.numbers.of, set[int](), dict[int, int]()
        for life, before in changing.values():
            for number, old in before.items():
                if old is not None and old.current:
                    was.add(of(number))
                new = self._contribution(life, number)
                self[number].replace(old, new)
                if new is not None and new.current:
                    now[of(number)] = now.get(of(number), 0) + 1
        differing = was ^ now.keys()
        shared = {number for number in differing if self[number].lives > now.get(number, 0)}
        living = self._lives.living(instance) if shared else ()
        if len(living) > FEW_LIVES:
            differing -= {number for number in shared if self._has_other(instance, living, number, changing)}
        else:
            for life in living:
                differing.difference_update(map(of, self._unchanged(life, shared, changing)))
        for number in differing:
            self[number].instances += 1 if number in now else -1

    def _has_other(
        self, instance: str, living: Collection[Life], number: int, changing: Mapping[int, tuple[Life, Before]]
    ) -> bool:
        """Tell whether an instance with many living lives has a current value in a sum that has not changed."""
        metrics = self.numbers.metrics_of({number})
        lives: Iterable[Life] = living
        if sum(map(self._holders.count, metrics)) < len(living):
            found = (life for metric in metrics for life in self._holders.of(metric))
            lives = (life for life in found if life.living and life.instance == instance)
        return any(self._unchanged(life, {number}, changing) for life in lives)

    def _unchanged(self, life: Life, sums: set[int], changing: Mapping[int, tuple[Life, Before]]) -> list[int]:
        """Return the metrics of a living life that have one of these sums, are current, and have not changed."""
        changed = changing[id(life)][1] if id(life) in changing else {}
        return [number for number in self._current_metrics(life, sums) if number not in changed]

    def _current_metrics(self, life: Life, sums: set[int]) -> Iterator[int]:
        """Yield the metrics of a living life that have one of these sums and are current."""
        for number in self.numbers.among(life.rows.keys(), sums):
            if life.is_current(life.rows[number]):
                yield number
        for block in life.blocks.values():
            layout = self._layouts.layout_for(block)
            yield from self.numbers.among(layout.index_of.keys(), sums)

    def _rescan(self, sums: set[int]) -> None:
        """Find lost extremes of these sums again among all lives and the forgotten ones."""
        if not sums:
            return
        found: dict[int, list[Contribution]] = defaultdict(list)
        others: dict[int, list[PartialSum]] = defaultdict(list)
        metrics, of = self.numbers.metrics_of(sums), self.numbers.of
        for number in metrics:
            for life in self._holders.of(number):
                found[of(number)] += filter(None, (self._contribution(life, number, with_sketch=False),))
        for number in metrics & self._state.forgotten_sums.keys():
            others[of(number)].append(self._state.forgotten_sums[number])
        for number in sums:
            self[number].rescan(found[number], others[number])

    def _build(self) -> None:
        state = self._state
        for number, forgotten_sums in state.forgotten_sums.items():
            self[number].merge(forgotten_sums)
        for life in self._lives:
            for number in life.rows:
                self[number].replace(None, self._contribution(life, number))
        self._build_blocks()
        self._build_instances()

    def _build_instances(self) -> None:
        alone: Counter[Layout] = Counter()
        for lives in self._state.lives.values():
            living = [life for life in lives.values() if life.living]
            layouts = [self._layouts.layout_for(block) for life in living for block in life.blocks.values()]
            current = {number for life in living for number, row in life.rows.items() if life.is_current(row)}
            if len(living) == 1 and not self.numbers.are_shared:
                alone.update(layouts)
            else:
                current.update(number for layout in layouts for number in layout.counted)
            for number in self.numbers.of_all(current):
                self[number].instances += 1
        for layout, instances in alone.items():
            for number in layout.counted:
                self[number].instances += instances

    def _build_blocks(self) -> None:
        """Add up all blocks. A life with baselines has no columns."""
        sums: dict[Layout, list[int]] = {}
        lives: Counter[Layout] = Counter()
        living: Counter[Layout] = Counter()
        for life in self._lives:
            for block in life.blocks.values():
                layout = self._layouts.layout_for(block)
                block.metrics = layout.packed  # one copy for all
                known, counts = sums.get(layout), counts_of(block)
                sums[layout] = list(counts) if known is None else list(map(operator.add, known, counts))
                lives[layout] += 1
                living[layout] += life.living
                if layout.columns is not None and block.distributions is not None:
                    layout.columns.share_grid(block.distributions)
                    self._replacements_of(layout).replace(None, block.distributions, living=life.living)
                for number in life.baselines.keys() & layout.index_of.keys():
                    count = counts[layout.index_of[number]]
                    self[number].add_to_count(-min(count, int(life.baselines[number][0] or 0)))
        for layout, totals in sums.items():
            for number, total in zip(layout.counted, totals, strict=True):
                self[number].add_to_count(total, lives[layout], living[layout])
        self._apply_waiting()
        self._changed.clear()

    def _contribution(self, life: Life, number: int, *, with_sketch: bool = True) -> Contribution | None:
        row = self._layouts.row(life, number, with_sketch=with_sketch)
        return None if row is None else self._contribution_of(life, number, row)

    def _contribution_of(self, life: Life, number: int, row: Row) -> Contribution:
        baseline = life.baselines.get(number)
        if baseline is None:
            return Contribution(row.values, life.is_current(row), row.sketch)
        values = since_baseline(self._state.metrics[number][2], row.values, baseline)
        return Contribution(values, life.is_current(row))  # a sketch has the earlier values, too
