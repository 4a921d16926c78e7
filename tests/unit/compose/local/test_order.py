"""The order of starts, restarts and stops, with components that do as the test says and a clock that it moves."""

from __future__ import annotations

import pytest

from tallystream_cli.local.supervisor import Supervisor


class Fake:
    """A component whose process lives as the test says; every call is noted in `calls`."""

    def __init__(self, name: str, calls: list[str], *, ready_after: int = 0, max_wait_s: float = 60.0) -> None:
        self.name = name
        self.max_wait_s = max_wait_s
        self.calls = calls
        self.looks_until_ready = ready_after
        self.code: int | None = None
        self.pid: int | None = None
        self.refuses: Exception | None = None

    def begin(self) -> None:
        """Start, or raise what `refuses` says."""
        self.calls.append(f"begin {self.name}")
        if self.refuses is not None:
            raise self.refuses
        self.code, self.pid = None, 1

    def ready(self) -> bool:
        """Count the looks."""
        self.looks_until_ready -= 1
        return self.looks_until_ready < 0

    def poll(self) -> int | None:
        """Return what `die` said."""
        return self.code

    def stop(self) -> None:
        """Note the call."""
        self.calls.append(f"stop {self.name}")
        self.pid = None

    def said(self) -> str:
        """Return its last words."""
        return f"the last words of {self.name}"

    def die(self, code: int) -> None:
        """End, as a crash would."""
        self.code, self.pid = code, None


class World:
    """Fake components under a supervisor, a clock that only pauses move, and what was said."""

    def __init__(self, *names: str) -> None:
        self.now = 0.0
        self.calls: list[str] = []
        self.said: list[str] = []
        self.parts = {name: Fake(name, self.calls) for name in names}
        self.states: list[tuple[str, ...]] = []
        self.supervisor = Supervisor(
            list(self.parts.values()),
            say=self.said.append,
            changed=lambda watched: self.states.append(tuple(one.state for one in watched)),
            clock=lambda: self.now,
            pause=self.pass_by,
        )

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def tick_at(self, seconds: float) -> None:
        """Tick at a time."""
        self.now = seconds
        self.supervisor.tick()

    def state(self, name: str) -> str:
        """Return the state of a component."""
        return next(one.state for one in self.supervisor.watched if one.component.name == name)


def test_the_first_is_ready_before_the_others_begin() -> None:
    """What all others need comes up first and `after` is called for it; then the others start side by side."""
    world = World("broker", "aggregate", "page")
    world.parts["broker"].looks_until_ready = 3
    world.parts["aggregate"].looks_until_ready = 5
    world.supervisor.start(after=lambda name: world.calls.append(f"after {name}"))
    assert world.calls[:2] == ["begin broker", "after broker"]
    assert world.calls[2:4] == ["begin aggregate", "begin page"]
    assert world.calls[4:] == ["after page", "after aggregate"]
    assert world.states[0] == ("starting", "waiting", "waiting")
    assert world.states[-1] == ("up", "up", "up")
    assert world.said[0].startswith("broker is up")


def test_the_dead_are_started_again_after_a_pause_that_grows() -> None:
    """Each death in a row doubles the pause; the start comes when the pause is over and not before."""
    world = World("broker", "page")
    world.supervisor.start()
    page, now = world.parts["page"], world.now
    for death, pause in enumerate([0.5, 1.0, 2.0, 4.0], start=1):
        page.die(-9)
        world.tick_at(now)
        assert world.said[-1] == f"page died (code -9); it is started again in {pause:g} s"
        world.tick_at(now + pause - 0.01)
        assert world.state("page") == "died"
        world.tick_at(now + pause)
        assert world.said[-1] == f"page is started again ({death})"
        world.tick_at(now + pause)
        assert world.state("page") == "up"
        assert world.said[-1].startswith("page is up again")
        now += pause
    assert world.state("broker") == "up"
    assert world.calls.count("begin page") == 5


def test_a_restart_that_can_not_begin_is_tried_again() -> None:
    """An error while starting again is said and counts as a death: the others go on, and the next try may succeed."""
    world = World("broker", "page")
    world.supervisor.start()
    page = world.parts["page"]
    page.die(1)
    page.refuses = OSError("out of processes")
    world.tick_at(100.0)
    world.tick_at(101.0)
    assert "page can't be started (out of processes)" in world.said[-1]
    assert world.state("page") == "died"
    page.refuses = None
    world.tick_at(200.0)
    world.tick_at(200.0)
    assert world.state("page") == "up"


def test_stopping_goes_backwards_once() -> None:
    """The last component is stopped first, what never was started is left alone, a second stop does nothing."""
    world = World("broker", "aggregate", "page")
    world.supervisor.stop()
    assert world.calls == []
    world.supervisor.start()
    world.calls.clear()
    world.supervisor.stop()
    world.supervisor.stop()
    assert world.calls == ["stop page", "stop aggregate", "stop broker"]
    assert world.states[-1] == ("stopped", "stopped", "stopped")


def test_a_start_that_is_interrupted_can_be_stopped() -> None:
    """Ctrl-C inside of a component's own start: stop ends that component too."""
    world = World("broker")
    world.parts["broker"].refuses = None

    def interrupted() -> None:
        raise KeyboardInterrupt

    world.parts["broker"].begin = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.supervisor.start()
    world.supervisor.stop()
    assert world.calls == ["stop broker"]
