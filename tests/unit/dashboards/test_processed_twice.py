"""What the sums say about records processed twice, after kills in every window of the documented consumer loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import fuzz
from support.consumer_group import PROCESSED, Group
from tallystream_dashboards.data.duplicates import Duplicates, duplicates, taken_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

PARTITIONS, INSTANCES = 3, 2
WINDOWS = {
    "before taken is reported": (0, 0),
    "during the work": (0, 4),
    "before counted is reported": (0, 4),
    "before the commit": (4, 4),
    "idle": (0, 0),
}
"""By the window of a kill in a batch of four: how many records are counted twice, and how many twice at most."""


def found_in(group: Group) -> Duplicates:
    """Return what the sums of the group say."""
    counted, taken = (of_counter(group, name) for name in (PROCESSED, taken_of(PROCESSED)))
    return counted.with_taken(taken)


def of_counter(group: Group, name: str) -> Duplicates:
    metrics = [metric for metric in group.sums() if metric.name.removesuffix(".position") == name]
    return duplicates(
        [one for one in metrics if one.type == "counter"], [one for one in metrics if one.type == "position"]
    )


def repeated(times: Counter[tuple[int, int]]) -> int:
    """Return how often records occur beyond their first time."""
    return times.total() - len(times)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_kill_in_each_window(window: str) -> None:
    """After a kill what was counted twice is exact, and what was processed twice is within the bound."""
    group = Group(1, 1)
    group.send(0, 4)
    group.step(0)
    while group.running[0].window != window:
        group.step(0)
    if window == "during the work":
        group.step(0)  # one of four records is processed
    group.kill(0)
    group.finish()
    found = found_in(group)
    assert (found.count, found.at_most) == WINDOWS[window]
    assert found.count == repeated(group.counted())
    assert found.at_most is not None
    assert found.count <= repeated(group.worked) <= found.at_most


of_instance, of_partition = st.integers(0, INSTANCES - 1), st.integers(0, PARTITIONS - 1)
steps = st.one_of(
    *[st.tuples(st.just("step"), of_instance)] * 4,
    st.tuples(st.just("kill"), of_instance),
    st.tuples(st.just("report"), of_instance),
    st.tuples(st.just("move"), of_partition, of_instance),
    st.tuples(st.just("send"), of_partition, st.integers(1, 9)),
)
early_commits = st.tuples(st.just("commit_first"), of_instance)


def run(group: Group, history: Sequence[tuple[str, int]]) -> None:
    for partition in range(PARTITIONS):
        group.send(partition, 5)
    for name, *arguments in history:
        getattr(group, name)(*arguments)


@fuzz.examples(1000)
@given(history=st.lists(steps, max_size=80), ends=st.booleans())
def test_counted_twice_is_exact_and_processed_twice_is_bounded(history: list[tuple[str, int]], *, ends: bool) -> None:
    """This holds at any moment, for kills in every window, background reports, and partitions that move."""
    group = Group(PARTITIONS, INSTANCES)
    run(group, history)
    if ends:
        group.finish()
    found = found_in(group)
    assert found.count == repeated(group.counted())
    assert found.at_most is not None
    assert found.count <= repeated(group.worked) <= found.at_most


@fuzz.examples(300)
@given(history=st.lists(st.one_of(steps, early_commits), max_size=80), takes=st.booleans())
def test_if_offsets_are_committed_first_the_number_is_a_difference(
    history: list[tuple[str, int]], *, takes: bool
) -> None:
    """With automatic commits it is what was counted twice less what was passed over without being counted."""
    group = Group(PARTITIONS, INSTANCES, takes=takes)
    run(group, history)
    counted, found = group.counted(), found_in(group)
    covered = {(int(one.partition), offset) for one in found.partitions for offset in range(one.start, one.position)}
    assert found.count == repeated(counted) - len(covered - counted.keys())


def test_without_a_count_before_the_work_nothing_is_known_of_it() -> None:
    """What a consumer counted before it began to count what it takes has no bound, and so has the whole."""
    group = Group(1, 1, takes=False)
    group.send(0, 4)
    group.finish()
    assert found_in(group).at_most is None
    group.takes = True
    group.kill(0)
    group.send(0, 40)
    group.finish()
    assert found_in(group).at_most is None
