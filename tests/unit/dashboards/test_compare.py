"""What the sums say about records lost, in flight and processed twice, after kills of producers and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import fuzz
from support.consumer_group import PROCESSED, SENT, Group
from tallystream_dashboards.data.compare import Bounds, Comparison, Counted, Place, Range, compare
from tallystream_dashboards.data.sides import Side, positions_of

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
ONE = Place("t", "0")


def found_in(group: Group, *, knows_sent: bool = True, commits_first: bool = False) -> Comparison:
    """Return what the sums of the group say."""
    sums = group.sums()

    def counted(name: str) -> Counted:
        counters = tuple(one for one in sums if one.name == name)
        return Side(counters, tuple(one for one in sums if one.name == positions_of(name))).at(0)

    sent, taken = counted(SENT), counted(f"{PROCESSED}.taken")
    return compare(sent if knows_sent else None, counted(PROCESSED), taken=taken, commits_first=commits_first)


class Truth(NamedTuple):
    """What became of the records at the offsets that anybody has published."""

    sent: int
    counted: int
    lost: int
    in_flight: int
    twice: int
    processed_twice: int


def truth(group: Group, found: Comparison) -> Truth:
    """Return the truth by the journals, about the offsets that the comparison speaks of."""
    counted = group.counted()
    sent: set[tuple[int, int]] = set()
    ahead: set[tuple[int, int]] = set()
    for place, known, processed in found.partitions:
        records = {(int(place.partition), offset) for offset in range(*known)} - group.markers
        sent |= records
        ahead |= {(partition, offset) for partition, offset in records if offset >= processed.end}
    lost = sent - ahead - counted.keys()
    return Truth(len(sent), counted.total(), len(lost), len(ahead), repeated(counted), repeated(group.worked))


def repeated(times: Counter[tuple[int, int]]) -> int:
    """Return how often records occur beyond their first time."""
    return times.total() - len(times)


def contains(bounds: Bounds, number: int) -> bool:
    return bounds.at_least <= number and (bounds.at_most is None or number <= bounds.at_most)


def wrong(group: Group, found: Comparison) -> list[str]:
    """Return the numbers that are not within their bounds."""
    true = truth(group, found)
    assert true.sent + true.twice == true.counted + true.lost + true.in_flight
    return [
        f"{name}: {getattr(true, name)}, not {getattr(found, name)}"
        for name in Truth._fields
        if not contains(getattr(found, name), getattr(true, name))
    ]


@pytest.mark.parametrize("window", WINDOWS)
def test_a_kill_in_each_window(window: str) -> None:
    """After a kill what was counted twice is exact, and what was processed twice is within the bound."""
    group = Group(1, 1)
    group.produce(0, 0, 4)
    group.report_sent(0)
    group.step(0)
    while group.running[0].window != window:
        group.step(0)
    if window == "during the work":
        group.step(0)  # one of four records is processed
    group.kill(0)
    group.finish()
    found = found_in(group)
    assert (found.twice, found.processed_twice) == (Bounds(*[WINDOWS[window][0]] * 2), Bounds(*WINDOWS[window]))
    assert (found.lost, found.in_flight) == (Bounds(0, 0), Bounds(0, 0))
    assert not wrong(group, found)


of_instance, of_partition = st.integers(0, INSTANCES - 1), st.integers(0, PARTITIONS - 1)
few = st.integers(1, 9)
of_consumers = st.one_of(
    *[st.tuples(st.just("step"), of_instance)] * 4,
    st.tuples(st.just("kill"), of_instance),
    st.tuples(st.just("report"), of_instance),
    st.tuples(st.just("move"), of_partition, of_instance),
    st.tuples(st.just("produce"), of_instance, of_partition, few),
    st.tuples(st.just("report_sent"), of_instance),
)
of_others = st.one_of(
    st.tuples(st.just("kill_producer"), of_instance),
    st.tuples(st.just("send"), of_partition, few),
    st.tuples(st.just("mark"), of_partition),
)
early_commits = st.tuples(st.just("commit_first"), of_instance)


def run(group: Group, history: Sequence[tuple[str, int]]) -> None:
    for partition in range(PARTITIONS):
        group.produce(0, partition, 5)
    group.report_sent(0)
    for name, *arguments in history:
        getattr(group, name)(*arguments)


@fuzz.examples(1000)
@given(history=st.lists(st.one_of(of_consumers, of_others), max_size=80), ends=st.booleans())
def test_every_number_is_within_its_bounds(history: list[tuple[str, int]], *, ends: bool) -> None:
    """This holds at any moment, for kills in every window, background reports, and partitions that move.

    Producers are killed, too; other ones send to the same topic; and offsets without a record are among the others.
    """
    group = Group(PARTITIONS, INSTANCES)
    run(group, history)
    if ends:
        group.finish()
    assert not wrong(group, found_in(group))


@fuzz.examples(300)
@given(history=st.lists(of_consumers, max_size=80))
def test_numbers_are_exact_when_all_is_done(history: list[tuple[str, int]]) -> None:
    """If all that was sent is reported and processed, lost, in flight and counted twice are exact."""
    group = Group(PARTITIONS, INSTANCES)
    run(group, history)
    for producer in range(INSTANCES):
        group.report_sent(producer)
    group.finish()
    found = found_in(group)
    assert (found.sent, found.lost, found.in_flight) == (Bounds(*[sum(group.ends)] * 2), Bounds(0, 0), Bounds(0, 0))
    assert found.twice == Bounds(*[repeated(group.counted())] * 2)
    assert not wrong(group, found)


@fuzz.examples(300)
@given(history=st.lists(st.one_of(of_consumers, of_others, early_commits), max_size=80), takes=st.booleans())
def test_if_offsets_are_committed_first_only_lower_bounds_are_claimed(
    history: list[tuple[str, int]], *, takes: bool
) -> None:
    """With automatic commits, records are lost, and their number hides as many that were counted twice."""
    group = Group(PARTITIONS, INSTANCES, takes=takes)
    run(group, history)
    assert not wrong(group, found_in(group, commits_first=True))


def test_early_commits_are_noticed() -> None:
    """If fewer records were counted than the positions cover, offsets were committed before their records."""
    group = Group(1, 1)
    group.produce(0, 0, 8)
    group.report_sent(0)
    group.step(0)
    group.commit_first(0)
    group.kill(0)
    group.finish()
    assert found_in(group).lost == Bounds(4, 4)
    group.produce(0, 0, 4)
    group.report_sent(0)
    group.finish()
    assert (found_in(group).lost.at_least, found_in(group).is_bad) == (4, True)


def test_without_a_count_before_the_work_nothing_is_known_of_it() -> None:
    """What a consumer counted before it began to count what it takes has no bound, and so has the whole."""
    group = Group(1, 1, takes=False)
    group.produce(0, 0, 4)
    group.finish()
    assert found_in(group).processed_twice == Bounds(0, None)
    group.takes = True
    group.kill(0)
    group.produce(0, 0, 40)
    group.finish()
    assert found_in(group).processed_twice == Bounds(0, None)


@pytest.mark.parametrize(
    ("sent", "counted", "uncommitted", "lost", "twice"),
    [
        (1000, 988, None, Bounds(), Bounds()),
        (1000, 988, 0, Bounds(12), Bounds()),
        (1000, 988, 5, Bounds(7), Bounds()),
        (1000, 1012, 0, Bounds(), Bounds()),
    ],
)
def test_counts_without_offsets(sent: int, counted: int, uncommitted: int | None, lost: Bounds, twice: Bounds) -> None:
    """Of two counts only the difference is known. If everything is committed, what is missing is lost."""
    found = compare(Counted(sent, {}), Counted(counted, {}), uncommitted=uncommitted)
    assert (found.lost, found.twice, found.is_bad) == (lost, twice, lost.at_least > 0)


@fuzz.examples(300)
@given(history=st.lists(of_consumers, max_size=80))
def test_without_a_count_of_what_was_sent_twice_is_exact(history: list[tuple[str, int]]) -> None:
    """If every offset has a record, the consumers alone tell what was counted twice, and at most processed twice."""
    group = Group(PARTITIONS, INSTANCES)
    run(group, history)
    found, times = found_in(group, knows_sent=False), repeated(group.counted())
    assert found.twice == Bounds(times, times)
    assert contains(found.processed_twice, repeated(group.worked))


def test_records_without_an_offset_may_be_lost() -> None:
    """If more were counted as sent than there are offsets, they may have failed, or their offsets are not known."""
    all_of_it = Counted(100, {ONE: Range(0, 100)})
    found = compare(Counted(110, {ONE: Range(0, 100)}), all_of_it, taken=all_of_it)
    assert (found.sent, found.lost, found.in_flight) == (Bounds(100, 110), Bounds(0, 10), Bounds(0, 0))


def test_what_was_processed_alone_tells_what_was_counted_twice() -> None:
    """Without a count of what was sent, nothing is known of what is lost or in flight."""
    found = compare(None, Counted(120, {ONE: Range(0, 100)}))
    assert (found.twice, found.lost, found.in_flight) == (Bounds(20, 20), Bounds(), Bounds())
