"""Which curves of `make soak` rise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.soak.curves import gain, picture

HOUR_S = 3600
NOISE, SAW = st.floats(min_value=0, max_value=2), st.floats(min_value=0, max_value=20)
SEEDS = st.integers(min_value=0, max_value=2**32)


def curve(seed: int, noise: float, *, saw: float = 0.0, leak: float = 0.0) -> list[tuple[float, float]]:
    """Return an hour of a value around 100. It is emptied every minute, and leaks so much in half an hour."""
    chance = random.Random(seed)
    return [
        (at_s, 100 + chance.gauss(0, noise) + saw * (at_s % 60) / 60 + leak * at_s / (HOUR_S / 2))
        for at_s in range(0, HOUR_S, 10)
    ]


@given(SEEDS, NOISE, SAW)
def test_what_rises_and_is_emptied_again_does_not_rise(seed: int, noise: float, saw: float) -> None:
    """Neither noise nor a saw of minutes is taken for a leak."""
    assert not gain(curve(seed, noise, saw=saw), HOUR_S / 2, HOUR_S).rises


@given(SEEDS, NOISE, SAW)
def test_a_leak_rises_under_noise_and_a_saw(seed: int, noise: float, saw: float) -> None:
    """A tenth in half an hour is found, and its size."""
    found = gain(curve(seed, noise, saw=saw, leak=12), HOUR_S / 2, HOUR_S)
    assert found.rises
    assert found.gain == pytest.approx(12, abs=4)


def test_a_step_in_the_first_half_is_not_judged() -> None:
    """What a start takes is no leak."""
    points = [(float(at_s), 10.0 if at_s < HOUR_S / 2 else 50.0) for at_s in range(HOUR_S)]
    assert gain(points, HOUR_S / 2, HOUR_S).gain == pytest.approx(0)


def test_a_part_that_did_not_run_has_no_gain() -> None:
    """A curve with fewer than four blocks is not judged."""
    found = gain([(HOUR_S - 1.0, 7.0)], HOUR_S / 2, HOUR_S)
    assert (found.gain, found.rises) == (0, False)


def test_the_picture_has_each_curve_and_marks_what_rises() -> None:
    """A curve that rises is red."""
    curves = {"flat": curve(1, 1.0), "leak": curve(1, 1.0, leak=12)}
    gains = {title: gain(points, HOUR_S / 2, HOUR_S) for title, points in curves.items()}
    drawn = picture(curves, gains, HOUR_S)
    flat, leak = drawn.index(">flat<"), drawn.index(">leak<")
    assert "#c00" not in drawn[flat:leak]
    assert "#c00" in drawn[leak:]
    assert f"second half: {gains['leak']}" in drawn
