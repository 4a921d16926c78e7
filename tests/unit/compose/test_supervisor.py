"""The supervisor: with fake components and a fake clock, then with real processes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.wait import wait_until
from tallystream_cli.local.component import Command
from tallystream_cli.local.supervisor import HEALTHY_AFTER_S, MAX_PAUSE_S, MIN_PAUSE_S, Backoff, StartError, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_the_pause_doubles_up_to_half_a_minute() -> None:
    """A component that always dies immediately is always restarted, after increasing pauses."""
    backoff = Backoff()
    assert [backoff.next_pause(0.1) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_long_run_resets_the_pause() -> None:
    """After a run of a minute the pause is the shortest one; after a slightly shorter run it doubles."""
    backoff = Backoff()
    for _ in range(4):
        backoff.next_pause(0.0)
    assert backoff.next_pause(HEALTHY_AFTER_S - 0.1) == 8
    assert backoff.next_pause(HEALTHY_AFTER_S) == MIN_PAUSE_S
    assert backoff.next_pause(0.0) == 2 * MIN_PAUSE_S


@given(st.lists(st.floats(0, 10_000), max_size=200))
def test_every_pause_is_within_its_bounds(runs: list[float]) -> None:
    """After any sequence of runs, a pause is between the shortest and the longest."""
    backoff = Backoff()
    assert all(MIN_PAUSE_S <= backoff.next_pause(ran_s) <= MAX_PAUSE_S for ran_s in runs)


class FakeComponent:
    """A component whose process runs and ends as the test requires. Every call is recorded in `calls`."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.start_timeout_s = 60.0
        self.calls = calls
        self.polls_until_ready = 0
        self.code: int | None = None
        self.pid: int | None = None
        self.error: BaseException | None = None

    def begin(self) -> None:
        """Start, or raise `error`."""
        self.calls.append(f"begin {self.name}")
        if self.error is not None:
            raise self.error
        self.code, self.pid = None, 1

    def ready(self) -> bool:
        """Return True after `polls_until_ready` calls."""
        self.polls_until_ready -= 1
        return self.polls_until_ready < 0

    def poll(self) -> int | None:
        """Return the exit code that was passed to `die`."""
        return self.code

    def stop(self) -> None:
        """Stop."""
        self.calls.append(f"stop {self.name}")
        self.pid = None

    def last_output(self) -> str:
        """Return the last lines of the log."""
        return f"the last output of {self.name}"

    def die(self, code: int) -> None:
        """End, as after a crash."""
        self.code, self.pid = code, None


class FakeSystem:
    """Fake components with a supervisor, its messages, and a clock that only `sleep` advances."""

    def __init__(self, *names: str) -> None:
        self.now = 0.0
        self.calls: list[str] = []
        self.messages: list[str] = []
        self.components = {name: FakeComponent(name, self.calls) for name in names}
        self.states: list[tuple[str, ...]] = []
        self.supervisor = Supervisor(
            list(self.components.values()),
            say=self.messages.append,
            on_change=lambda watched: self.states.append(tuple(one.state for one in watched)),
            clock=lambda: self.now,
            sleep=self.sleep,
        )

    def sleep(self, seconds: float) -> None:
        """Move the clock."""
        self.now += seconds

    def tick_at(self, seconds: float) -> None:
        """Set the clock and tick."""
        self.now = seconds
        self.supervisor.tick()

    def state(self, name: str) -> str:
        """Return the state of a component."""
        return next(one.state for one in self.supervisor.watched if one.component.name == name)


def test_the_first_component_is_ready_before_the_others_start() -> None:
    """The first component, which the others need, is ready and `on_ready` is called before the others start."""
    system = FakeSystem("broker", "aggregate", "page")
    system.components["broker"].polls_until_ready = 3
    system.components["aggregate"].polls_until_ready = 5
    system.supervisor.start(on_ready=lambda name: system.calls.append(f"ready {name}"))
    assert system.calls[:2] == ["begin broker", "ready broker"]
    assert system.calls[2:4] == ["begin aggregate", "begin page"]
    assert system.calls[4:] == ["ready page", "ready aggregate"]
    assert system.states[0] == ("starting", "waiting", "waiting")
    assert system.states[-1] == ("up", "up", "up")
    assert system.messages[0].startswith("broker is up")


def test_a_dead_component_is_restarted_after_a_pause_that_doubles() -> None:
    """Each death in a row doubles the pause; the restart comes when the pause has ended, not before."""
    system = FakeSystem("broker", "page")
    system.supervisor.start()
    page, now = system.components["page"], system.now
    for death, pause in enumerate([0.5, 1.0, 2.0, 4.0], start=1):
        page.die(-9)
        system.tick_at(now)
        assert system.messages[-1] == f"page died (code -9); it is restarted in {pause:g} s"
        system.tick_at(now + pause - 0.01)
        assert system.state("page") == "died"
        system.tick_at(now + pause)
        assert system.messages[-1] == f"page: restart {death}"
        system.tick_at(now + pause)
        assert system.state("page") == "up"
        assert system.messages[-1].startswith("page is up again")
        now += pause
    assert system.state("broker") == "up"
    assert system.calls.count("begin page") == 5


def test_a_restart_that_fails_is_tried_again() -> None:
    """An error during a restart is reported and counts as a death; the next attempt can succeed."""
    system = FakeSystem("broker", "page")
    system.supervisor.start()
    page = system.components["page"]
    page.die(1)
    page.error = OSError("out of processes")
    system.tick_at(100.0)
    system.tick_at(101.0)
    assert "page can't be started (out of processes)" in system.messages[-1]
    assert system.state("page") == "died"
    page.error = None
    system.tick_at(200.0)
    system.tick_at(200.0)
    assert system.state("page") == "up"


def test_components_stop_once_in_reverse_order() -> None:
    """The last component stops first. Components that never started, and a second `stop`, do nothing."""
    system = FakeSystem("broker", "aggregate", "page")
    system.supervisor.stop()
    assert system.calls == []
    system.supervisor.start()
    system.calls.clear()
    system.supervisor.stop()
    system.supervisor.stop()
    assert system.calls == ["stop page", "stop aggregate", "stop broker"]
    assert system.states[-1] == ("stopped", "stopped", "stopped")


def test_a_component_whose_start_is_interrupted_is_stopped() -> None:
    """If Ctrl-C interrupts `begin`, `stop` also stops that component."""
    system = FakeSystem("broker")
    system.components["broker"].error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        system.supervisor.start()
    system.supervisor.stop()
    assert system.calls == ["begin broker", "stop broker"]


READY = "import pathlib, signal, sys, time; pathlib.Path({ready!r}).touch(); "
RUNS = READY + "signal.pause()"
IGNORES_SIGTERM = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY + "\nwhile True: signal.pause()"
)
WITH_CHILD = (
    "import subprocess, sys; "
    "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); "
    "open({pids!r}, 'w').write(str(child.pid)); " + RUNS
)
FAILS = "import sys; print('the disk is full'); sys.exit(3)"
NEVER_READY = "import signal; signal.pause()"


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


class RealSystem:
    """Components that run scripts, their supervisor and its messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.messages: list[str] = []
        self.supervisor = Supervisor([], say=self.messages.append)

    def command(self, name: str, script: str, *, start_timeout_s: float = 60.0) -> Command:
        """Return a component that runs a script."""
        ready_file = self.folder / f"{name}.ready"
        text = script.format(ready=str(ready_file), pids=str(self.folder / f"{name}.pids"))
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-c", text]
        return Command(name, command, log=log, ready_file=ready_file, start_timeout_s=start_timeout_s)

    def supervise(self, *components: Command, sleep: Callable[[float], object] | None = None) -> Supervisor:
        """Return a supervisor of these components, with the fake clock."""
        options = {} if sleep is None else {"sleep": sleep}
        self.supervisor = Supervisor(components, say=self.messages.append, clock=self.clock, **options)
        return self.supervisor

    def states(self) -> list[str]:
        """Return the states of all components."""
        return [one.state for one in self.supervisor.watched]

    def tick_until(self, state: str) -> None:
        """Call `tick` with the clock stopped until the last component is in this state."""

        def reached() -> bool:
            self.supervisor.tick()
            return self.states()[-1] == state

        wait_until(reached, 60, f"{self.supervisor.watched[-1].component.name} is {state}")


@pytest.fixture
def system(tmp_path: Path) -> Iterator[RealSystem]:
    """A system whose processes are stopped after the test."""
    system = RealSystem(tmp_path)
    yield system
    system.supervisor.stop()


def test_no_process_runs_after_stop(system: RealSystem) -> None:
    """Processes stop in reverse order, and each of them has ended when `stop` returns."""
    supervisor = system.supervise(*(system.command(name, RUNS) for name in ("broker", "sums", "page")))
    supervisor.start()
    assert system.states() == ["up"] * 3
    assert system.messages[0].startswith("broker is up")
    pids = [one.component.pid for one in supervisor.watched]
    system.messages.clear()
    supervisor.stop()
    assert system.messages == ["page is stopped", "sums is stopped", "broker is stopped"]
    assert not any(pid is not None and psutil.pid_exists(pid) for pid in pids)
    supervisor.stop()
    assert len(system.messages) == 3


def test_a_killed_process_is_restarted(system: RealSystem) -> None:
    """The death is reported with the code; after the pause another process runs; the next pause is longer."""
    supervisor = system.supervise(system.command("sums", RUNS))
    supervisor.start()
    watched = supervisor.watched[0]
    for restarts, pause in ((1, 0.5), (2, 1.0)):
        old = watched.component.pid
        assert old is not None
        psutil.Process(old).kill()
        system.tick_until("died")
        assert system.messages[-1] == f"sums died (code -9); it is restarted in {pause:g} s"
        system.clock.now += pause - 0.01
        supervisor.tick()
        assert (watched.state, watched.component.pid) == ("died", None)
        system.clock.now += 0.02
        system.tick_until("up")
        assert watched.component.pid not in (None, old)
        assert watched.restarts == restarts
        assert f"sums: restart {restarts}" in system.messages


def test_start_fails_if_a_component_exits(system: RealSystem) -> None:
    """The error has the name, the exit code and the last output of the component."""
    supervisor = system.supervise(system.command("broker", RUNS), system.command("sums", FAILS))
    with pytest.raises(StartError, match=r"(?s)sums: exited with code 3:.*the disk is full"):
        supervisor.start()


def test_start_fails_if_a_component_is_not_ready_in_time(system: RealSystem) -> None:
    """The start waits for the component's timeout."""

    def sleep(_: float) -> None:
        system.clock.now += 30.0

    supervisor = system.supervise(system.command("sums", NEVER_READY), sleep=sleep)
    with pytest.raises(StartError, match=r"sums: not up after \d+ s"):
        supervisor.start()


def test_a_restart_that_is_not_ready_in_time_is_stopped_and_tried_again(system: RealSystem) -> None:
    """A component that hangs after a restart does not stay in the state `starting`."""
    supervisor = system.supervise(system.command("sums", RUNS))
    supervisor.start()
    supervisor.watched[0].component = system.command("sums", NEVER_READY)
    supervisor.watched[0].state = "died"
    supervisor.tick()
    hanging = supervisor.watched[0].component.pid
    assert hanging is not None
    system.clock.now += 61.0
    supervisor.tick()
    assert system.states() == ["died"]
    assert "was not up after 61 s" in system.messages[-1]
    assert not psutil.pid_exists(hanging)


def test_a_component_that_ignores_sigterm_is_killed(system: RealSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the timeout the process gets SIGKILL."""
    monkeypatch.setattr("tallystream_cli.local.component.STOP_TIMEOUT_S", 0.2)
    supervisor = system.supervise(system.command("sums", IGNORES_SIGTERM))
    supervisor.start()
    command = supervisor.watched[0].component
    pid = command.pid
    assert pid is not None
    supervisor.stop()
    assert command.poll() == -9
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_the_children_of_a_component_are_killed_with_it(system: RealSystem, how: str) -> None:
    """Processes that a component started, such as Spark's JVM, end when it is stopped and when it has died."""
    supervisor = system.supervise(system.command("sums", WITH_CHILD))
    supervisor.start()
    child = psutil.Process(int((system.folder / "sums.pids").read_text()))
    assert child.is_running()
    if how == "stopped":
        supervisor.stop()
    else:
        pid = supervisor.watched[0].component.pid
        assert pid is not None
        psutil.Process(pid).kill()
        system.tick_until("died")

    def gone() -> bool:
        return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE

    wait_until(gone, 30, "the child has ended")
