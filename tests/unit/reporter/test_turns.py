"""Long work in turns: others get theirs, short ones come where others need them, and nothing is out of order."""

from __future__ import annotations

import threading

import pytest

from tallystream.reporter import _turns
from tallystream.reporter._turns import ALONE, CROWDED, KEPT_WAITING, begin_turns, ensure_time, in_turns

LENGTH, ITEMS = 20 * ALONE.turn, 400


class Machine:
    """A clock that only moves as it is told, and what a pause takes beside its moment: how long others keep the GIL."""

    def __init__(self) -> None:
        self.now = self.others = 0.0
        self.pauses: list[tuple[float, float]] = []  # (when it began, how long it was to be)

    def perf_counter(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Give the GIL up."""
        self.pauses.append((self.now, seconds))
        self.now += seconds + self.others

    def work(self, seconds: float) -> list[float]:
        """Do so many seconds of work, item by item; return how long the turns were."""
        begin_turns()
        begin, turns = self.now, []
        for _ in in_turns(range(ITEMS)):
            self.now += seconds / ITEMS
        for paused, moment in self.pauses:
            turns.append(paused - begin)
            begin = paused + moment + self.others
        self.pauses.clear()
        return turns


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return one on which no turn has been taken."""
    made = Machine()
    monkeypatch.setattr(_turns, "sleep", made.sleep)
    monkeypatch.setattr(_turns, "perf_counter", made.perf_counter)
    monkeypatch.setattr(_turns, "_turn", _turns._Turn())
    return made


def test_others_run_whenever_the_work_took_a_turn(machine: Machine) -> None:
    """All items come in order, with a pause after the item in which the turn ended."""
    seen: list[object] = []
    begin_turns()
    for item in in_turns("abcde"):
        seen += [len(machine.pauses), item]
        machine.now += 0.6 * CROWDED.turn
    assert seen == [0, "a", 0, "b", 1, "c", 1, "d", 2, "e"]
    assert [moment for _, moment in machine.pauses] == [CROWDED.moment] * 2


def test_a_turn_goes_on_over_several_pieces_of_work(machine: Machine) -> None:
    """What comes next does not begin a turn: it ends the one that has begun, also where it can't be interrupted."""
    begin_turns()
    for _ in in_turns("a"):
        machine.now += 0.7 * CROWDED.turn
    ensure_time(0.2 * CROWDED.turn)
    assert not machine.pauses
    ensure_time(0.4 * CROWDED.turn)
    assert len(machine.pauses) == 1
    for _ in in_turns("bc"):
        machine.now += 0.6 * CROWDED.turn
    assert len(machine.pauses) == 2


def test_turns_are_long_where_nobody_waits_and_short_where_others_are_at_work(machine: Machine) -> None:
    """At first short; long after work in which nobody kept this thread waiting; short as soon as somebody does."""

    def longest_turn() -> float:
        return max(machine.work(LENGTH))

    def about(turn: float) -> object:
        return pytest.approx(turn + LENGTH / ITEMS / 2, abs=LENGTH / ITEMS)

    assert longest_turn() == about(CROWDED.turn)
    for _ in range(2):
        assert longest_turn() == about(ALONE.turn)
    machine.others = 5 * KEPT_WAITING
    first, *others = machine.work(LENGTH)
    assert first == about(ALONE.turn)
    assert max(others) == about(CROWDED.turn)
    assert longest_turn() == about(CROWDED.turn)
    machine.others = 0.5 * KEPT_WAITING  # the operating system's, or of a thread that gives the GIL up by itself
    assert longest_turn() == about(CROWDED.turn)
    assert longest_turn() == about(ALONE.turn)


def test_each_thread_has_its_own_turns(machine: Machine) -> None:
    """The pauses of one thread are none of another, whose turn ends when it would have."""
    begin_turns()
    machine.now += 2 * CROWDED.turn
    other = threading.Thread(target=begin_turns)
    other.start()
    other.join()
    ensure_time(0.0)
    assert len(machine.pauses) == 1


def test_what_takes_longer_than_a_turn_has_one_of_its_own(machine: Machine) -> None:
    """Two such things in a row have one pause between them, and what is short goes on in the turn that was begun."""
    begin_turns()
    seen: list[object] = []
    for item in in_turns("aBcDEf"):
        if item.isupper():
            ensure_time(2 * CROWDED.turn)
        seen += [len(machine.pauses), item]
        machine.now += CROWDED.turn * (1.2 if item.isupper() else 0.3)
    assert seen == [0, "a", 1, "B", 2, "c", 3, "D", 4, "E", 5, "f"]
