"""Who stays by chance: each with its own, whatever happens to the others, and by few draws where few stay."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tallystream.reporter._chances import Chooser, few_of

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 40_000
RISING = [0.0, 0.002, 0.01, 0.02, 0.02, 0.04, 0.1, 0.1, 0.15, 0.2, 0.24]
BATCHES = [(3, 0.02), (2, 0.2), (1, 0.01), (4, 0.1), (3, 0.6), (2, 0.15)]

fractions = st.floats(0, 1, exclude_max=True)


def by_place(draw: Callable[[], float]) -> set[int]:
    """Choose among as many places as there are chances."""
    return set(few_of(len(RISING), RISING.__getitem__, draw))


def by_batch() -> Callable[[Callable[[], float]], set[int]]:
    """Choose among the values of all batches, with a chooser that has chosen before."""
    choosers: list[Chooser] = []

    def choose(draw: Callable[[], float]) -> set[int]:
        chooser = choosers[0] if choosers else Chooser(draw)
        choosers[:] = [chooser]
        number, found = 0, set[int]()
        for size, chance in BATCHES:
            found.update(map(int, chooser.some_of([float(number + at) for at in range(size)], chance)))
            number += size
        return found

    return choose


@pytest.mark.parametrize(
    ("choose", "chances"),
    [(by_place, RISING), (by_batch(), [chance for size, chance in BATCHES for _ in range(size)])],
    ids=["places", "batches"],
)
def test_each_stays_by_its_own_chance(choose: Callable[[Callable[[], float]], set[int]], chances: list[float]) -> None:
    """Over many rounds each stays as often as its chance says, and any two together as often as the product says.

    Within five deviations, which chance alone exceeds once in a million; the draws are the same in each run.
    """
    draw, size = Random(1).random, len(chances)
    alone, together = [0] * size, [[0] * size for _ in range(size)]
    for _ in range(ROUNDS):
        found = choose(draw)
        for one in found:
            alone[one] += 1
            for other in found:
                together[one][other] += 1
    for one, chance in enumerate(chances):
        assert near(alone[one], chance), (one, alone[one])
        for other in range(one):
            assert near(together[one][other], chance * chances[other]), (one, other, together[one][other])


def near(count: int, chance: float) -> bool:
    """Tell whether the count of rounds is within five deviations of what is expected, and one for small counts."""
    return abs(count - ROUNDS * chance) <= 5 * (ROUNDS * chance * (1 - chance)) ** 0.5 + (chance > 0)


@example([5e-324, 0.2], [0.5, 0.0])
@given(st.lists(st.floats(0, 0.25), max_size=30), st.lists(fractions, min_size=1))
def test_places_come_in_order_whatever_is_drawn(chances: list[float], numbers: list[float]) -> None:
    """Each place at most once, rising, none without a chance: for chances down to the smallest number, and any draw."""
    chances.sort()
    source = Random(1)
    draws = iter(numbers)
    found = few_of(len(chances), chances.__getitem__, lambda: next(draws, source.random()))
    assert found == sorted(set(found))
    assert all(chances[place] > 0 for place in found)


@example([(3, 5e-324), (3, 0.0), (2, 0.2)], [0.0, 0.999])
@given(
    st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1, exclude_max=True)), max_size=10),
    st.lists(fractions, min_size=1),
)
def test_values_stay_in_order_whatever_is_drawn(batches: list[tuple[int, float]], numbers: list[float]) -> None:
    """Some of the values, in their order, none without a chance: for chances down to the smallest number, any draw."""
    source = Random(1)
    draws = iter(numbers)
    chooser = Chooser(lambda: next(draws, source.random()))
    for size, chance in batches:
        found = chooser.some_of([float(at) for at in range(size)], chance)
        assert found == sorted(set(found))
        assert set(found) <= set(range(size))
        assert chance > 0 or not found


@pytest.mark.parametrize("size", [10_000, 100_000])
def test_few_are_chosen_with_few_draws(size: int) -> None:
    """A hundred of many: some hundred draws, and not one for each of the many."""
    drawn = 0
    numbers = Random(1)

    def draw() -> float:
        nonlocal drawn
        drawn += 1
        return numbers.random()

    assert 50 < len(few_of(size, lambda _: 100 / size, draw)) < 150
    assert drawn < 310
    chooser, drawn = Chooser(draw), 0
    chosen = [value for _ in range(100) for value in chooser.some_of([0.0] * (size // 100), 100 / size)]
    assert 50 < len(chosen) < 150
    assert drawn < 160
