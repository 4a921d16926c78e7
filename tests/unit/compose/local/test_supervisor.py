"""The supervisor over real, short-lived processes, on a clock of the test's own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from support.wait import wait_until
from tallystream_cli.local.component import Command
from tallystream_cli.local.supervisor import StartError, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

READY = "import pathlib, signal, sys, time; pathlib.Path({ready!r}).touch(); "
STAYS = READY + "signal.pause()"
HARD = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY + "\nwhile True: signal.pause()"
FAMILY = (
    "import subprocess, sys; "
    "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); "
    "open({pids!r}, 'w').write(str(child.pid)); " + STAYS
)
FAILS = "import sys; print('no room for tea'); sys.exit(3)"
NEVER = "import signal; signal.pause()"


class Clock:
    """Seconds that pass only when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the seconds now."""
        return self.now


class World:
    """Components that run scripts, one supervisor over them, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.said: list[str] = []
        self.supervisor = Supervisor([], say=self.said.append)

    def command(self, name: str, script: str, *, max_wait_s: float = 60.0) -> Command:
        """Return a component that runs a script."""
        ready = self.folder / f"{name}.ready"
        text = script.format(ready=str(ready), pids=str(self.folder / f"{name}.pids"))
        log = self.folder / f"{name}.log"
        return Command(name, [sys.executable, "-c", text], log=log, ready=ready, max_wait_s=max_wait_s)

    def supervise(self, *components: Command, pause: Callable[[float], object] | None = None) -> Supervisor:
        """Return the supervisor of these components, on the test's clock."""
        wait = {} if pause is None else {"pause": pause}
        self.supervisor = Supervisor(components, say=self.said.append, clock=self.clock, **wait)
        return self.supervisor

    def states(self) -> list[str]:
        """Return the states of all components."""
        return [one.state for one in self.supervisor.watched]

    def tick_until(self, state: str) -> None:
        """Look again and again, without time passing, until the last component is in this state."""

        def reached() -> bool:
            self.supervisor.tick()
            return self.states()[-1] == state

        wait_until(reached, 60, f"{self.supervisor.watched[-1].component.name} is {state}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world whose processes end with the test."""
    made = World(tmp_path)
    yield made
    made.supervisor.stop()


def test_components_start_in_order_and_stop_in_reverse(world: World) -> None:
    """The first is ready before the others start; the last one started is the first one stopped; none is left."""
    supervisor = world.supervise(*(world.command(name, STAYS) for name in ("broker", "sums", "page")))
    supervisor.start()
    assert world.states() == ["up"] * 3
    assert world.said[0].startswith("broker is up")
    pids = [one.component.pid for one in supervisor.watched]
    world.said.clear()
    supervisor.stop()
    assert world.said == ["page is stopped", "sums is stopped", "broker is stopped"]
    assert not any(pid is not None and psutil.pid_exists(pid) for pid in pids)
    supervisor.stop()
    assert len(world.said) == 3


def test_a_component_that_dies_is_started_again_after_its_pause(world: World) -> None:
    """It is noticed and said with the code, stays down for the pause, comes up again, and the next pause is longer."""
    supervisor = world.supervise(world.command("sums", STAYS))
    supervisor.start()
    watched = supervisor.watched[0]
    for restarts, pause in ((1, 0.5), (2, 1.0)):
        old = watched.component.pid
        assert old is not None
        psutil.Process(old).kill()
        world.tick_until("died")
        assert world.said[-1] == f"sums died (code -9); it is started again in {pause:g} s"
        world.clock.now += pause - 0.01
        supervisor.tick()
        assert (watched.state, watched.component.pid) == ("died", None)
        world.clock.now += 0.02
        world.tick_until("up")
        assert watched.component.pid not in (None, old)
        assert watched.restarts == restarts
        assert f"sums is started again ({restarts})" in world.said


def test_a_component_that_fails_at_the_start_ends_the_start(world: World) -> None:
    """The error has the name, the exit code and what the component said last."""
    supervisor = world.supervise(world.command("broker", STAYS), world.command("sums", FAILS))
    with pytest.raises(StartError, match=r"(?s)sums: ended with code 3:.*no room for tea"):
        supervisor.start()


def test_a_component_that_is_never_ready_ends_the_start(world: World) -> None:
    """A start waits as long as the component's patience, not for ever."""

    def pause(_: float) -> None:
        world.clock.now += 30.0

    supervisor = world.supervise(world.command("sums", NEVER), pause=pause)
    with pytest.raises(StartError, match=r"sums: not up after \d+ s"):
        supervisor.start()


def test_a_restarted_component_that_is_never_ready_is_ended_and_tried_again(world: World) -> None:
    """A component that hangs after a restart does not stay in `starting` for ever."""
    supervisor = world.supervise(world.command("sums", STAYS))
    supervisor.start()
    supervisor.watched[0].component = world.command("sums", NEVER)
    supervisor.watched[0].state = "died"
    supervisor.tick()
    hanging = supervisor.watched[0].component.pid
    assert hanging is not None
    world.clock.now += 61.0
    supervisor.tick()
    assert world.states() == ["died"]
    assert "was not up after 61 s" in world.said[-1]
    assert not psutil.pid_exists(hanging)


def test_a_component_that_ignores_sigterm_is_killed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop has a bound: then it is SIGKILL."""
    monkeypatch.setattr("tallystream_cli.local.component.STOP_S", 0.2)
    supervisor = world.supervise(world.command("sums", HARD))
    supervisor.start()
    command = supervisor.watched[0].component
    pid = command.pid
    assert pid is not None
    supervisor.stop()
    assert command.poll() == -9
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_the_children_of_a_component_end_with_it(world: World, how: str) -> None:
    """What a component started (Spark's JVM and Python workers) is gone when it is stopped, and when it has died."""
    supervisor = world.supervise(world.command("sums", FAMILY))
    supervisor.start()
    child = psutil.Process(int((world.folder / "sums.pids").read_text()))
    assert child.is_running()
    if how == "stopped":
        supervisor.stop()
    else:
        pid = supervisor.watched[0].component.pid
        assert pid is not None
        psutil.Process(pid).kill()
        world.tick_until("died")

    def gone() -> bool:
        return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE

    wait_until(gone, 30, "the child has ended")
