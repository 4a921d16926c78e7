"""The decaying sample before the first look: thinned out without a trace, as if every priority had been drawn."""

from __future__ import annotations

import math
from collections import Counter
from heapq import nlargest
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tallystream.reporter._chances import FEW
from tallystream.reporter._unread import GOLDEN, Unread
from tallystream.reporter.decaying import DecayingReservoir

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE, SAMPLES = 10, 4_000
PACES = {
    "all at once": [(0.0, 300)],
    "all at once, by tens": [(0.0, 10)] * 30,
    "two minutes, three bursts": [(0.0, 100), (60.0, 100), (120.0, 100)],
    "steadily, for ten minutes": [(second, 6) for second in range(0, 600, 12)],
    "a crowd, then single ones": [(0.0, 290), *((30.0 + second, 1) for second in range(30))],
    "an hour and more, with a pause": [(minute * 60.0, 6) for minute in (*range(20), *range(60, 90))],
    "twenty minutes, and the first values after an hour": [
        (minute * 60.0, 6) for minute in (*range(20), *range(60, 64))
    ],
}


def batches(pace: list[tuple[float, int]]) -> Iterator[tuple[float, list[float]]]:
    """Yield when values come, and the values: all whole numbers from zero on."""
    number = 0
    for when, size in pace:
        yield when, [float(number + at) for at in range(size)]
        number += size


def drawn_at_once(pace: list[tuple[float, int]], draw: Random) -> list[float]:
    """Return the values with the highest priorities, as the formula has them: log(exp(alpha * time) / u)."""
    found = [(0.015 * when - math.log(1 - draw.random()), value) for when, values in batches(pace) for value in values]
    return [value for _, value in nlargest(SIZE, found)]


@pytest.mark.parametrize("pace", PACES.values(), ids=PACES)
def test_every_value_has_the_chance_that_priorities_would_give_it(pace: list[tuple[float, int]]) -> None:
    """Over thousands of samples each stretch of values is as often in one as where each priority is drawn at once.

    Of twelve stretches the squared differences by their variances add up to less than 64: chance alone exceeds that
    once in a thousand million times (chi square, 11 degrees). Samples are thinned out up to six times before the look.
    """
    total = sum(size for _, size in pace)
    taken: dict[str, Counter[int]] = {"unread": Counter(), "at once": Counter()}
    draw, other = Random(1), Random(2)
    for _ in range(SAMPLES):
        reservoir = DecayingReservoir(0.0, SIZE, 0.015, draw.random)
        for when, values in batches(pace):
            reservoir.update(values, when)
        kept = [value for value, _ in reservoir.sample()]
        assert len(set(kept)) == SIZE
        taken["unread"].update(int(12 * value / total) for value in kept)
        taken["at once"].update(int(12 * value / total) for value in drawn_at_once(pace, other))
    pairs = [(taken["unread"][stretch], taken["at once"][stretch]) for stretch in range(12)]
    assert sum((one - two) ** 2 / (one + two) for one, two in pairs if one + two) < 64, pairs


@example(43, [(0.0, 400), (80.0, 93), (0.0, 31)], 1)  # as many as are wanted outweigh all others
@given(st.integers(1, 60), st.lists(st.tuples(st.floats(0, 50), st.integers(0, 300)), max_size=20), st.integers())
def test_enough_are_kept_and_not_many_more(size: int, pace: list[tuple[float, int]], seed: int) -> None:
    """However many values come, and however their weights grow: never fewer than are needed, never without end.

    Nor does anything else grow: no weight is kept of which there is no value.
    """
    unread, number, exponent = Unread(size, Random(seed).random), 0, 0.0
    for pause, more_values in pace:
        exponent = min(exponent + pause, 700.0)
        unread.take([float(number + at) for at in range(more_values)], math.exp(exponent))
        number += more_values
        assert min(size, number) <= len(unread) <= 2 * (size + 6 * math.sqrt(size) + 11)
        assert all(unread._sizes)
    drawn = list(unread.drawn())
    assert len({one.value for one in drawn}) == len(unread)
    assert all(one.priority >= one.weight for one in drawn)


@pytest.mark.parametrize("growth", [1.0, 1.5])
def test_so_many_stay_as_are_wanted(growth: float) -> None:
    """For a sample of 100 each thinning out leaves 170, and newcomers have the chance of those that are there already.

    The numbers are not drawn by chance, but spread evenly.
    """
    numbers = count()
    unread = Unread(100, lambda: next(numbers) * GOLDEN % 1)
    unread.take([0.0] * 600, 1.0)
    assert abs(len(unread) - 170) <= 4
    unread.take([1.0] * 400, 1.0)
    assert abs(len(unread) - 170 - 400 * 170 / 600) <= 8
    for step in range(1, 20):
        before = len(unread)
        unread.take([2.0] * 300, growth**step)
        if len(unread) < before:
            assert abs(len(unread) - 170) <= 8


@pytest.mark.parametrize("heavy", [1, 30])
def test_what_outweighs_all_others_stays_for_certain(heavy: int) -> None:
    """Such values stay as long as they are fewer than are wanted; of the others so many go that enough are left."""
    for seed in range(200):
        unread = Unread(SIZE, Random(seed).random)
        unread.take([1.0] * 150, 1.0)
        while len(unread) < 78 - heavy:
            unread.take([1e3], 1e3)
        unread.take([1e18] * heavy, 1e18)
        assert SIZE <= len(unread) < 62
        assert Counter(one.weight for one in unread.drawn())[1e18] == heavy


def test_who_outlived_a_threshold_has_its_chance_at_the_next() -> None:
    """Values that are lighter than the last threshold stay as if they had its weight: their own says nothing more.

    The next one is so much higher that few of them do. In all their number is within five deviations.
    """
    stayed = expected = variance = 0.0
    for seed in range(20):
        unread = Unread(1000, Random(seed).random)
        while not unread._threshold:
            unread.take([0.0] * 100, 1.0)
        old = unread._threshold
        light = len(unread)
        while unread._threshold == old:
            unread.take([1.0] * 100, 30 * old)
        chance = old / unread._threshold
        assert chance < FEW
        stayed += sum(one.value == 0.0 for one in unread.drawn())
        expected += light * chance
        variance += light * chance * (1 - chance)
    assert abs(stayed - expected) < 5 * math.sqrt(variance)


def test_weights_that_vanish_take_their_values_with_them() -> None:
    """After a scaling down that leaves a weight nothing, its values are gone, and the others are as they were."""
    unread = Unread(SIZE, Random(1).random)
    unread.take([1.0, 2.0], 1e-300)
    unread.take([3.0], 1.0)
    unread.rescale(1e-30)
    assert [(one.value, one.weight) for one in unread.drawn()] == [(3.0, 1e-30)]
