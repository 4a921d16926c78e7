"""What the sums say about records lost, in flight and processed twice, after kills of producers and consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import fuzz
from support.compared import Truth, contains, repeated, too_high, truth, wrong
from support.consumer_group import PROCESSED, SENT, Group
from tallystream_dashboards.data.bounds import Bounds
from tallystream_dashboards.data.compare import Comparison, Counted, Place, Range, compare
from tallystream_dashboards.data.sides import Side, positions_of

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
    return compare(
        sent if knows_sent else None,
        counted(PROCESSED),
        taken=taken if taken.count else None,
        commits_first=commits_first,
    )


def test_a_reason_about_one_record() -> None:
    """The verb is singular."""
    offsets = {ONE: Range(0, 10)}
    found = compare(Counted(9, offsets), Counted(8, {ONE: Range(1, 9)}))
    assert found.why[2].startswith("1 offset has no record that is counted as sent: ")
    assert found.why[3] == "1 offset is before the first one that was processed."
    found = compare(None, Counted(9, {ONE: Range(0, 9)}), taken=Counted(10, {ONE: Range(0, 9)}))
    assert found.why[-1] == "1 record was taken and not counted: in work, or by a process that was killed."


def granted(found: Comparison, text: str) -> bool:
    """Return whether a sentence says that the bounds rest on this."""
    return any(sentence.startswith("Taken for granted") and text in sentence for sentence in found.why)


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


@fuzz.examples(100)
@given(history=fuzz.lists(st.one_of(of_consumers, of_others), 80))
def test_without_a_count_of_what_was_sent_upper_bounds_are_granted(history: list[tuple[str, int]]) -> None:
    """Offsets without a record hide as many that were counted twice. So no bound is claimed, except if there are none.

    What is certain stays true.
    """
    group = Group(PARTITIONS, INSTANCES)
    run(group, history)
    found, true = found_in(group, knows_sent=False), truth(group, found_in(group, knows_sent=False))
    assert not wrong(group, found, ("twice", "processed_twice"))
    assert (found.twice.is_exact, found.processed_twice.is_exact) == (False, False)
    if not group.markers:
        assert found.twice.granted is None or true.twice <= found.twice.granted
        assert found.processed_twice.granted is None or true.processed_twice <= found.processed_twice.granted


@fuzz.examples(100)
@given(
    history=fuzz.lists(
        st.one_of(
            of_consumers,
            st.tuples(st.just("delete"), of_partition, few),
            st.tuples(st.just("seek"), of_partition, st.integers(-9, 9)),
        ),
        80,
    ),
    knows_sent=st.booleans(),
)
def test_records_that_are_passed_over(history: list[tuple[str, int]], *, knows_sent: bool) -> None:
    """Retention and seeks hide as many that were counted twice. If they are known, no upper bound is claimed."""
    group = Group(PARTITIONS, INSTANCES)
    run(group, history)
    group.report_sent(0)
    group.report_sent(1)
    found = found_in(group, knows_sent=knows_sent)
    assert not too_high(group, found)
    assert granted(found, "none is passed over")
    found = found_in(group, knows_sent=knows_sent, commits_first=True)
    assert not wrong(group, found, Truth._fields if knows_sent else ("lost", "twice", "processed_twice"))


@fuzz.examples(100)
@given(
    before=fuzz.lists(of_consumers, 40),
    after=fuzz.lists(of_consumers, 40),
    has_positions=st.booleans(),
    takes=st.booleans(),
)
def test_old_instances_that_count_less(
    before: list[tuple[str, int]], after: list[tuple[str, int]], *, has_positions: bool, takes: bool
) -> None:
    """What instances without positions, or without a count of what they take, did is neither lost nor twice."""
    group = Group(PARTITIONS, INSTANCES)
    group.has_positions, group.takes = has_positions, takes
    group.upgrade(1)
    run(group, before)
    group.has_positions = group.takes = True
    group.upgrade(1)
    for name, *arguments in after:
        getattr(group, name)(*arguments)
    group.report_sent(0)
    group.report_sent(1)
    found = found_in(group)
    assert not wrong(group, found, Truth._fields if takes else ("sent", "counted", "lost", "in_flight", "twice"))
    assert found.processed_twice.at_most is None or granted(found, "all count what they take")


@fuzz.examples(100)
@given(before=fuzz.lists(of_consumers, 40), after=fuzz.lists(of_consumers, 40), knows_sent=st.booleans())
def test_several_tags(before: list[tuple[str, int]], after: list[tuple[str, int]], *, knows_sent: bool) -> None:
    """Each version counts with a tag of its own, and takes records again that the one before it has taken."""
    group = Group(PARTITIONS, INSTANCES)
    run(group, before)
    group.upgrade(1)
    for name, *arguments in after:
        getattr(group, name)(*arguments)
    group.report_sent(0)
    group.report_sent(1)
    found = found_in(group, knows_sent=knows_sent)
    assert not wrong(group, found, Truth._fields if knows_sent else ("twice", "processed_twice"))


@fuzz.examples(100)
@given(
    history=fuzz.lists(
        st.one_of(
            of_consumers,
            st.tuples(st.just("mark"), of_partition),
            st.tuples(st.just("create_again"), of_partition),
        ),
        60,
    )
)
def test_a_topic_that_is_created_again(history: list[tuple[str, int]]) -> None:
    """If more records were sent than there are offsets, nothing is claimed that this disproves."""
    group = Group(PARTITIONS, INSTANCES)
    run(group, history)
    group.report_sent(0)
    group.report_sent(1)
    found, counted = found_in(group), group.counted()
    if any("was created again" in sentence for sentence in found.why if not sentence.startswith("Taken")):
        sent = sum(group.ends) - len(group.markers)
        assert contains(found.sent, sent)
        assert contains(found.twice, repeated(counted))
        assert contains(found.processed_twice, repeated(group.worked))
        assert found.lost.at_least + found.in_flight.at_least <= sent - len(counted)
    else:
        assert granted(found, "no topic was created again")


@fuzz.examples(100)
@given(history=fuzz.lists(st.one_of(of_consumers, of_others, early_commits), 80), takes=st.booleans())
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


def test_records_without_an_offset_may_be_lost() -> None:
    """If more were counted as sent than there are offsets, they may have failed, or their offsets are not known."""
    all_of_it = Counted(100, {ONE: Range(0, 100)})
    found = compare(Counted(110, {ONE: Range(0, 100)}), all_of_it, taken=all_of_it)
    assert (found.sent, found.lost, found.in_flight) == (Bounds(100, 110), Bounds(), Bounds())


def all_of(count: int, within: tuple[int, int]) -> Counted:
    return Counted(count, {ONE: Range(*within)})


@pytest.mark.parametrize(
    ("sent", "counted", "taken", "number", "true"),
    [
        pytest.param((1500, (0, 1000)), (1000, (0, 1000)), None, "in_flight", 500, id="a topic created again, unread"),
        pytest.param((1500, (0, 1000)), (1500, (0, 1000)), None, "twice", 0, id="a topic created again, read"),
        pytest.param((1100, (0, 1000)), (1000, (0, 1000)), None, "in_flight", 100, id="producers without positions"),
        pytest.param((2000, (0, 2000)), (2000, (1000, 2000)), None, "lost", 0, id="counted without positions, lost"),
        pytest.param((2000, (0, 2000)), (2000, (1000, 2000)), None, "twice", 0, id="counted without positions, twice"),
        pytest.param(
            None, (1000, (0, 1000)), (1000, (0, 500)), "processed_twice", 900, id="not all count what they take"
        ),
    ],
)
def test_what_the_counts_do_not_show(
    sent: tuple[Any, ...] | None, counted: tuple[Any, ...], taken: tuple[Any, ...] | None, number: str, true: int
) -> None:
    """The bounds contain the truth, whatever the offsets hide."""
    found = compare(all_of(*sent) if sent else None, all_of(*counted), taken=all_of(*taken) if taken else None)
    assert contains(getattr(found, number), true)


def test_records_that_a_killed_producer_did_not_report() -> None:
    """Only the end of the topic shows them. Without it, a sentence says that there may be some."""
    all_of_it = all_of(1000, (0, 1000))
    found = compare(all_of_it, all_of_it, taken=all_of_it)
    assert any("a killed one may have sent more" in sentence for sentence in found.why)
    found = compare(all_of_it, all_of_it, taken=all_of_it, offsets={ONE: Range(0, 1010)})
    assert (found.sent, found.in_flight) == (Bounds(1000, 1010), Bounds(0, 10))
    assert (found.lost, found.processed_twice) == (Bounds(0, 0), Bounds(0, 0))
