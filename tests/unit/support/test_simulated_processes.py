"""The scheduler: a run depends on its choices only, and a dead process does nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.simulation.broker import Action, SimulatedCluster
from support.simulation.choices import ListedChoices, RandomChoices
from support.simulation.client import SimulatedBroker
from support.simulation.scheduler import Faults, Scheduler
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
