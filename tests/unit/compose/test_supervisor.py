"""The supervisor: with fake components and a fake clock, then with real processes."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from support.processes import running
from support.wait import wait_until
from tallystream_cli.local.supervisor import HEALTHY_AFTER_S, Command, Supervisor
from tallystream_cli.servers.process import Server, StartError, tail


def test_the_last_lines_of_a_long_log(tmp_path: Path) -> None:
    """Logs are never truncated, so only the end of one is read. A missing log has no lines."""
    log = tmp_path / "page.log"
    assert tail(log) == ""
    log.write_bytes("".join(f"{number} größer\n" for number in range(500_000)).encode() + b"\xff end\n")
    tracemalloc.start()
    found, (_, peak) = tail(log, lines=2), tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == "499999 größer\n\ufffd end"
    assert peak < 1_000_000


class FakeComponent(Server):
    """A component whose process runs and ends as the test requires. Every call is recorded in `calls`."""

    def __init__(self, name: str, calls: list[str]) -> None:
        super().__init__(name, Path("no log"))
        self.calls = calls
        self.polls_until_ready = 0
        self.code: int | None = None
        self.error: BaseException | None = None

    def begin(self) -> None:
        """Start, or raise `error`."""
        self.calls.append(f"begin {self.name}")
        if self.error is not None:
            raise self.error
        self.code = None

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
            on_change=lambda: self.states.append(tuple(one.state for one in self.supervisor.watched)),
            clock=lambda: self.now,
            sleep=self.sleep,
        )

    def start(self) -> None:
        """Start everything together."""
        self.supervisor.start(self.supervisor.watched)

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


def test_a_group_starts_together() -> None:
    """The start returns when all of the group are ready; the others wait."""
    system = FakeSystem("broker", "aggregate", "page")
    system.components["aggregate"].polls_until_ready = 5
    system.supervisor.start(system.supervisor.watched[1:])
    assert system.calls == ["begin aggregate", "begin page"]
    assert system.states[0] == ("waiting", "starting", "waiting")
    assert system.states[-1] == ("waiting", "up", "up")
    assert [message.split()[0] for message in system.messages] == ["page", "aggregate"]


def test_a_download_is_not_counted_as_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A component that needs long before its process begins has its whole time from then on."""
    system = FakeSystem("broker")
    broker = system.components["broker"]
    broker.polls_until_ready = 5
    monkeypatch.setattr(broker, "begin", lambda: system.sleep(10 * broker.start_timeout_s))
    system.start()
    assert system.state("broker") == "up"


def test_a_dead_component_is_restarted_after_a_pause_that_doubles() -> None:
    """Each death in a row doubles the pause, up to half a minute. A run of a minute makes it short again.

    The restart comes when the pause has ended, not before.
    """
    system = FakeSystem("broker", "page")
    system.start()
    page, now = system.components["page"], system.now
    for death, pause in enumerate([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0], start=1):
        page.code = -9
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
    assert system.calls.count("begin page") == 9
    page.code = -9
    system.tick_at(now + HEALTHY_AFTER_S)
    assert system.messages[-1] == "page died (code -9); it is restarted in 0.5 s"


def test_a_restart_that_fails_is_tried_again() -> None:
    """An error during a restart is reported and counts as a death; the next attempt can succeed."""
    system = FakeSystem("broker", "page")
    system.start()
    page = system.components["page"]
    page.code = 1
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
    system.start()
    system.calls.clear()
    system.supervisor.stop()
    system.supervisor.stop()
    assert system.calls == ["stop page", "stop aggregate", "stop broker"]
    assert system.states[-1] == ("stopped", "stopped", "stopped")


def test_a_component_whose_start_fails_is_stopped() -> None:
    """It may have started a part of its processes."""
    system = FakeSystem("broker")
    system.components["broker"].error = StartError("broker: its folder can't be formatted")
    with pytest.raises(StartError):
        system.start()
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


class Real(NamedTuple):
    """Components that run scripts, in a folder."""

    folder: Path
    started: list[Command]

    def command(self, name: str, script: str, **env: str | None) -> Command:
        """Return a component that runs a script. It is stopped after the test."""
        ready_file = self.folder / f"{name}.ready"
        text = script.format(ready=str(ready_file), pids=str(self.folder / f"{name}.pids"))
        log = self.folder / "logs" / f"{name}.log"
        self.started.append(Command(name, [sys.executable, "-c", text], log=log, ready_file=ready_file, env=env))
        return self.started[-1]


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Real]:
    """Components whose processes are stopped after the test."""
    system = Real(tmp_path, [])
    yield system
    for command in system.started:
        command.stop()


def test_a_command_is_ready_when_its_ready_file_exists(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of an earlier run is removed at the start. Variables are added to the environment, or removed."""
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("REMOVED", "removed")
    (real.folder / "sums.ready").touch()
    waiting = real.command("sums", NEVER_READY)
    waiting.begin()
    assert not waiting.ready()
    script = "import os; print(os.getenv('KEPT'), os.getenv('REMOVED'), os.getenv('ADDED'), flush=True); " + RUNS
    command = real.command("page", script, REMOVED=None, ADDED="added").start()
    pid = command.pid
    assert command.poll() is None
    assert "kept None added" in command.last_output()
    assert str(real.folder / "logs" / "page.log") in command.last_output()
    command.stop()
    command.stop()
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_start_fails_if_a_component_exits(real: Real) -> None:
    """The error has the name, the exit code and the last output of the component."""
    supervisor = Supervisor([real.command("broker", RUNS), real.command("sums", FAILS)], say=lambda _: None)
    with pytest.raises(StartError, match=r"(?s)sums: exited with code 3:.*the disk is full"):
        supervisor.start(supervisor.watched)


def test_start_fails_if_a_component_is_not_ready_in_time(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the component's timeout. Started by itself, the process is killed."""
    monkeypatch.setattr(Command, "start_timeout_s", 0.2)
    command = real.command("sums", NEVER_READY)
    with pytest.raises(StartError, match=r"sums: not up after \d+ s"):
        command.start()
    assert command.poll() == -9


def test_a_restart_that_is_not_ready_in_time_is_stopped_and_tried_again() -> None:
    """A component that hangs after a restart does not stay in the state `starting`."""
    system = FakeSystem("sums")
    system.start()
    sums = system.components["sums"]
    sums.code, sums.polls_until_ready = 1, 100
    system.tick_at(100.0)
    system.tick_at(101.0)
    system.tick_at(101.0 + sums.start_timeout_s + 1)
    assert system.state("sums") == "died"
    assert system.calls[-2:] == ["begin sums", "stop sums"]
    assert "sums: not up after 61 s" in system.messages[-1]


def test_a_component_that_ignores_sigterm_is_killed(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the timeout the process gets SIGKILL."""
    monkeypatch.setattr(Command, "stop_timeout_s", 0.2)
    command = real.command("sums", IGNORES_SIGTERM).start()
    command.stop()
    assert command.poll() == -9


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_the_children_of_a_component_are_killed_with_it(real: Real, how: str) -> None:
    """Processes that a component started, such as Spark's JVM, end when it is stopped and when it has died."""
    command = real.command("sums", WITH_CHILD).start()
    child = psutil.Process(int((real.folder / "sums.pids").read_text()))
    assert child.is_running()
    if how == "stopped":
        command.stop()
    else:
        assert command.pid is not None
        psutil.Process(command.pid).kill()
        wait_until(lambda: command.poll() == -9, 60, "it has died")
    wait_until(lambda: not running([child]), 30, "the child has ended")
