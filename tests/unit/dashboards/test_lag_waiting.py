"""What waits until a status may change, and what a restart of the collector changes: nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.lag import Rounds, entered, group, round_of
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_dashboards.lag.offsets import GroupOffsets
from tallystream_dashboards.lag.reader import read_partitions
from tallystream_dashboards.lag.status import Rules, Status

T0 = 1_700_000_100_000
RULES = Rules(window_s=40, warn_age_s=10)


def test_a_first_status_is_no_change() -> None:
    """A group that stops soon after its first commit is shown at once, although it was NOTFOUND and OK before."""
    found, rounds = [], Rounds(RULES)
    for second in range(0, 40, 5):
        offsets = group("g", (1000 if second else None, 1000 + second))
        rounds.points(round_of(offsets), T0 + second * 1000)
        found.append((second, rounds.states[0].evaluation.status))
    assert entered(found) == [(0, Status.NOTFOUND), (5, Status.OK), (30, Status.ERR)]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_waits_is_shown_although_it_has_ended(store: LocalStore, reader: LocalStore, *, restarts: bool) -> None:
    """An offset that goes back 10 s after a WARN is REWIND a window after the WARN, for a window.

    The store has at once that it waits, so that it is shown although the collector was restarted meanwhile.
    """
    found, reasons, rounds = list[tuple[int, Status]](), {}, Rounds(RULES)
    for second in range(0, 150, 5):
        behind = 20 if second < 65 else 50 if second == 65 else 0
        now_ms = T0 + second * 1000
        if restarts and second == 70:
            rounds = Rounds(RULES)
            rounds.load(reader, now_ms)
        offsets = group("g", (980 + second + 20 - behind, 1000 + second))
        store.write(rounds.points(round_of(offsets), now_ms))
        (partition,) = read_partitions(reader, at_ms=now_ms)["g"]
        found.append((second, partition.evaluation.status))
        reasons[second] = partition.evaluation.reason
    assert entered(found) == [(0, Status.OK), (55, Status.WARN), (95, Status.REWIND), (135, Status.OK)]
    went_back = "The committed offset went back from 1,040 to 1,015."
    assert reasons[65] == f"{went_back} That is REWIND, but a status of this group changed in the last 40 s."
    assert reasons[95] == f"{went_back} Now: The lag is 0."


def went_back(second: int, *others: tuple[int, int]) -> GroupOffsets:
    """Return a group of which one partition is late until 65 s and another one goes back at 65 s, soon after a WARN."""
    return group("g", (980 + second, 1000 + second), *others, (1000 + second - 50 * (second == 65), 1000 + second))


def test_the_reason_of_a_group_names_what_waits_in_any_partition() -> None:
    """The group is WARN because of one partition, and would be ERR because of another one."""
    rounds = Rounds(RULES)
    for second in range(0, 70, 5):
        rounds.points(round_of(went_back(second)), T0 + second * 1000)
    (state,) = rounds.states
    assert state.evaluation.reason == (
        "WARN in orders/0 (1 of 2 partitions): It is over 10 s behind; in 40 s the lag went from 20 to 20. "
        "orders/1: The committed offset went back from 1,060 to 1,015. "
        "That is REWIND, but a status of this group changed in the last 40 s."
    )


def test_what_waits_in_a_partition_that_is_no_longer_read_is_shown() -> None:
    """The last thing that is known of it is what it shows, and not how it was before."""
    rounds, reasons, found = Rounds(RULES), {}, []
    for second in range(0, 120, 5):
        offsets = went_back(second)
        if second > 65:
            offsets = replace(offsets, partitions=offsets.partitions[:1], unread=frozenset({("orders", 1)}))
        rounds.points(round_of(offsets), T0 + second * 1000)
        (partition,) = (one for one in rounds.states[0].partitions if one.partition == 1)
        reasons[second] = partition.evaluation.reason
        found.append((second, partition.evaluation.status))
    assert entered(found) == [(0, Status.OK), (95, Status.REWIND)]
    before = "It was not read in the newest round; before: The committed offset went back from 1,060 to 1,015."
    assert reasons[90] == f"{before} That is REWIND, but a status of this group changed in the last 40 s."
    assert reasons[115] == before


def test_a_first_status_that_waits_is_in_the_reason() -> None:
    """A group that is ERR, and then reads another topic, is NOTFOUND until its status may change."""
    rounds = Rounds(RULES)
    for second in range(0, 40, 5):
        stopped, other = group("g", (5, 10), topic="a"), group("g", (1000, 1000), topic="b")
        rounds.points(round_of(stopped if second < 35 else other), T0 + second * 1000)
    (state,) = rounds.states
    waits = "The lag is 0. That is OK, but a status of this group changed in the last 40 s."
    assert (state.evaluation.status, state.evaluation.reason) == (Status.NOTFOUND, waits)


def test_a_new_partition_says_that_its_first_status_waits() -> None:
    """Read first while another partition's status waits, it is NOTFOUND until then, with the reason."""
    rounds = Rounds(RULES)
    for second in range(0, 70, 5):
        others = [(1000 + second, 1000 + second)] if second < 65 else [(1000, 1065), (7, 7)]
        rounds.points(round_of(group("g", (980 + second, 1000 + second), *others)), T0 + second * 1000)
    _, old, new = sorted(rounds.states[0].partitions, key=lambda one: one.partition)
    assert ["REWIND" in old.evaluation.reason, "That is OK, but" in new.evaluation.reason] == [True, True]
    assert [one.evaluation.status for one in (old, new)] == [Status.OK, Status.NOTFOUND]


def test_partitions_that_were_deleted_are_not_loaded(store: LocalStore, reader: LocalStore) -> None:
    """A group whose topic was deleted has none after a restart, also if the next round does not read it."""
    rounds = Rounds(RULES)
    for second, offsets in enumerate((group("g", (5, 10)), group("g"))):
        store.write(rounds.points(round_of(offsets), T0 + second * 1000))
    rounds = Rounds(RULES)
    rounds.load(reader, T0 + 2000)
    rounds.points(round_of(unread=["g"]), T0 + 2000)
    (state,) = rounds.states
    assert state.partitions == ()
