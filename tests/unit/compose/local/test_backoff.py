"""The pauses before a component that died is started again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystream_cli.local.supervisor import FIRST_S, LONGEST_S, STEADY_S, Backoff


def test_the_pause_doubles_up_to_half_a_minute() -> None:
    """A component that dies at once again and again is started ever more rarely, but never given up."""
    backoff = Backoff()
    assert [backoff.died(0.1) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_component_that_ran_steadily_begins_anew() -> None:
    """A death after a minute of work counts as the first one, a death just before that as one more."""
    backoff = Backoff()
    for _ in range(4):
        backoff.died(0.0)
    assert backoff.died(STEADY_S - 0.1) == 8
    assert backoff.died(STEADY_S) == FIRST_S
    assert backoff.died(0.0) == 2 * FIRST_S


@given(st.lists(st.floats(0, 10_000), max_size=200))
def test_every_pause_is_within_its_bounds(runs: list[float]) -> None:
    """Whatever the component does, a pause is neither shorter than the first nor longer than the longest."""
    backoff = Backoff()
    assert all(FIRST_S <= backoff.died(ran) <= LONGEST_S for ran in runs)
