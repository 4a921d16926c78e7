"""The scheduler: a run depends on its choices only, and a dead process does nothing more."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import greenlet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.simulation.broker import Action, SimulatedCluster
from support.simulation.choices import DrawnChoices, ListedChoices, RandomChoices, shrink
from support.simulation.client import SimulatedBroker
from support.simulation.scheduler import Faults, Scheduler
from support.simulation.watchdog import HungError, Watchdog
from tallystream_aggregator.stream.broker import BrokerError, FencedError, Output, Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.simulation.choices import Choices
    from support.simulation.processes import Process

IN, OUT, ROW = Place("metrics", 0), Place("metrics-agg", 0), Place("metrics-table", 0)
ALL_FAULTS = Faults(kill_before=100, kill_after=100, lose_answer=100, fail=100, late=100, freeze=100)


def new_cluster() -> SimulatedCluster:
    cluster = SimulatedCluster()
    for topic in ("metrics", "metrics-agg", "metrics-table"):
        cluster.create(topic, 1)
    return cluster


def copy_records(process: Process, cluster: SimulatedCluster) -> None:
    """Write each record that is read to two partitions, for ever."""
    broker = SimulatedBroker(process, cluster, {"metrics"}.__contains__)
    writer, source = broker.writer("x"), broker.source()
    source.assign({IN: 0})
    while True:
        for chunk in source.read(10, 1.0):
            writer.commit([Output(place, row[2], row[3]) for row in chunk.rows for place in (OUT, ROW)])


def run(choices: Choices, steps: int, faults: Faults = ALL_FAULTS) -> tuple[SimulatedCluster, list[str]]:
    """Let two processes copy records under faults, and begin again when they end."""
    cluster = new_cluster()
    with Scheduler(choices, cluster, faults=faults, expected=(BrokerError, FencedError), log_size=None) as scheduler:

        def actions() -> list[Action]:
            spawn = Action(20, "spawn", lambda: scheduler.spawn("copier", lambda p: copy_records(p, cluster)))
            append = Action(30, "append", lambda: cluster.append(IN, b"k", b"v"))
            return [append, spawn] if len(scheduler.processes) < 2 else [append]

        scheduler.actions = actions
        scheduler.run(steps)
        return cluster, list(scheduler.log)


def logs(cluster: SimulatedCluster) -> list[object]:
    return [cluster.partition(place).entries for place in cluster.places()]


def test_the_same_choices_give_the_same_run() -> None:
    """Everything that happened and every entry of the logs are equal, by a seed and by the list of its choices."""
    choices = RandomChoices(7)
    first, happened = run(choices, 3_000)
    for again in (RandomChoices(7), ListedChoices(choices.made)):
        second, happened_again = run(again, 3_000)
        assert happened_again == happened
        assert logs(second) == logs(first)
    assert run(RandomChoices(8), 3_000)[1] != happened
    for fault in Faults._fields:
        assert any(line.endswith(f"({fault})") for line in happened)


@examples(20)
@given(st.data())
def test_hypothesis_can_make_the_choices(data: st.DataObject) -> None:
    """It draws them one by one, and the committed records of both outputs are the input's, in order."""
    cluster, _ = run(DrawnChoices(data), 100, Faults(lose_answer=500))
    for place in (OUT, ROW):
        assert all(entry.value == b"v" for entry in cluster.partition(place).committed(0, 1_000))


def test_choices_of_zero_have_no_faults() -> None:
    """So shrinking takes faults away."""
    _, happened = run(ListedChoices([]), 100, Faults(*[1_000] * len(Faults._fields)))
    assert len(happened) == 100
    assert not [line for line in happened if "(" in line]


def test_a_run_that_fails_is_made_shorter_and_more_harmless() -> None:
    """What is left are the choices that make it fail. Runs that go on for longer than the list do not count."""

    def fails(choices: Choices) -> bool:
        made = [0]
        while len(made) < 1_000 and not (made[-1] == 9 and 7 in made):
            made.append(choices.choose(10, "digit"))
        return len(made) < 1_000

    choices = RandomChoices(1)
    assert fails(choices)
    assert len(choices.made) > 2
    assert shrink(choices.made, fails) == [7, 9]


def one(code: Callable[[Process], object], choices: Choices | None = None, **faults: int) -> tuple[Scheduler, Process]:
    """Run one process to its end, or to its death."""
    with Scheduler(
        choices or ListedChoices([]), SimulatedCluster(), faults=Faults(**faults), expected=(BrokerError,)
    ) as s:
        process = s.spawn("one", code)
        s.run(100)
    return s, process


def always(kind: str, points: int) -> tuple[Choices, dict[str, int]]:
    """Return choices and faults with which the request after this many harmless ones has a fault of this kind."""
    return ListedChoices([0, 0] * points + [0, 9_999]), {kind: 1}


@pytest.mark.parametrize(("kind", "happened"), [("kill_before", ["first"]), ("kill_after", ["first", "second"])])
def test_a_dead_process_does_nothing_more(kind: str, happened: list[str]) -> None:
    """Whatever its code catches or cleans up, no request of it has an effect, and it has no result."""
    effects: list[str] = []

    def code(process: Process) -> str:
        process.call("first", lambda: effects.append("first"))
        for _ in range(3):
            try:
                process.call("second", lambda: effects.append("second"))
            except BaseException:  # noqa: BLE001 (bad code)
                process.call("again", lambda: effects.append("again"))
            finally:
                process.call("clean up", lambda: effects.append("clean up"))
        return "done"

    choices, faults = always(kind, 2)
    _, process = one(code, choices, **faults)
    assert effects == happened
    assert (process.ended, process.result, process.error) == (True, None, None)


@pytest.mark.parametrize(("kind", "has_effect"), [("fail", False), ("lose_answer", True)])
def test_a_request_that_fails_has_an_effect_only_if_its_answer_was_lost(kind: str, *, has_effect: bool) -> None:
    """The caller gets the same error."""
    effects: list[str] = []
    choices, faults = always(kind, 1)
    _, process = one(lambda p: p.call("first", lambda: effects.append("first")), choices, **faults)
    assert isinstance(process.error, BrokerError)
    assert effects == ["first"] * has_effect


@pytest.mark.parametrize("kind", ["late", "kill_before"])
def test_a_request_may_arrive_after_its_client_has_gone(kind: str) -> None:
    """It is an action of the cluster."""
    effects: list[str] = []
    listed = [0, 0, 0, 9_999] + [1] * (kind == "kill_before")
    with Scheduler(ListedChoices(listed), SimulatedCluster(), faults=Faults(**{kind: 1}), expected=(BrokerError,)) as s:
        s.spawn("one", lambda p: p.call("write", lambda: effects.append("write"), may_be_late=True))
        s.run(2)
        assert (effects, s.processes, [action.name for action in s.cluster.actions()]) == ([], [], ["late write"])
        s.run(1)
    assert effects == ["write"]


def test_a_frozen_process_goes_on_where_it_was_when_it_is_woken() -> None:
    """Others act in between."""
    done: list[str] = []
    choices, faults = always("freeze", 1)
    with Scheduler(choices, SimulatedCluster(), faults=Faults(**faults)) as s:
        frozen = s.spawn("frozen", lambda p: p.call("zombie", lambda: done.append("zombie")))
        s.run(2)
        assert frozen.frozen
        s.spawn("other", lambda p: p.call("other", lambda: done.append("other")))
        s.run(2)
        s.settle(10, lambda: frozen.ended)
    assert done == ["other", "zombie"]


def test_a_process_waits_until_it_is_ready_and_its_clocks_are_its_own() -> None:
    """`sleep` lets the time of all pass. The wall clock of a process may be wrong."""
    times: list[float] = []

    def code(process: Process) -> None:
        times.extend((process.monotonic(), process.now()))
        process.sleep(5)
        times.extend((process.monotonic(), process.now()))

    with Scheduler(ListedChoices([]), SimulatedCluster()) as s:
        ready: list[bool] = []
        waiting = s.spawn("waiting", lambda p: p.wait("the other", lambda: bool(ready)))
        other = s.spawn("other", code, wall_offset_ms=-60_000)
        assert s.run(10) is False
        assert other.ended
        assert not waiting.ended
        ready.append(True)
        assert s.run(10, lambda: waiting.ended)
    assert 5 <= times[2] - times[0] < 6
    assert times[0] - times[1] == pytest.approx(60)
    assert times[2] - times[3] == pytest.approx(60)


def test_an_error_that_is_not_expected_ends_the_run() -> None:
    """An assertion of the code fails the test."""

    def code(process: Process) -> None:
        process.call("divide", lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        one(code)


def test_nothing_is_left_of_a_run() -> None:
    """Neither a thread nor a greenlet, also of frozen, waiting and killed processes, and after an error."""
    before = threading.active_count()
    for seed in range(20):
        run(RandomChoices(seed), 200)
    with pytest.raises(ZeroDivisionError):
        one(lambda p: p.call("divide", lambda: 1 // 0))
    gc.collect()
    left = [found for found in gc.get_objects() if isinstance(found, greenlet.greenlet) and not found.dead]
    assert left == [greenlet.getcurrent()]
    assert threading.active_count() == before


def test_code_that_computes_for_ever_is_ended() -> None:
    """The watchdog raises in it, whatever it catches."""

    def code(process: Process) -> None:
        watchdog.start()
        while True:
            try:
                sum(range(1_000))
            except Exception:  # noqa: BLE001 (bad code)
                continue

    with Scheduler(ListedChoices([]), SimulatedCluster()) as s:
        s.spawn("one", code)
        watchdog = Watchdog(lambda: s.points, patience_s=0.1)
        with pytest.raises(HungError):
            s.run(1)
        watchdog.stop()
