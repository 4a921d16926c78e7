"""The scheduler of simulated processes: a run depends on nothing but its choices.

At each step it picks what happens next: the next request of a process, something that the cluster does on its own time,
or something in the world around them. It can stop a process for good before or after the effect of a request, freeze
it, refuse a request, or lose the answer.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import accumulate
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from greenlet import getcurrent  # type: ignore[import-untyped]

from support.simulation.broker import Action, SimulatedCluster
from support.simulation.processes import Killed, Process, Request
from tallystream_aggregator.stream.broker import BrokerError


class Choices(Protocol):
    """Where all choices of a run come from."""

    def choose(self, n: int, what: str) -> int:
        """Return a number from 0 to n - 1. `what` says what is chosen."""


class RandomChoices:
    """Choices by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def choose(self, n: int, what: str) -> int:  # noqa: ARG002 (the protocol has it)
        return int(self._random() * n)


class HarmlessChoices:
    """All choices are 0."""

    def choose(self, n: int, what: str) -> int:  # noqa: ARG002 (the protocol has it)
        return 0


class Faults(NamedTuple):
    """How many of 10,000 requests have a fault of each kind."""

    kill_before: int = 0
    """The process ends before the effect."""
    kill_after: int = 0
    """The process ends after the effect and before the answer."""
    lose_answer: int = 0
    """The effect happens, and the caller gets a `BrokerError`."""
    fail: int = 0
    """There is no effect, and the caller gets a `BrokerError`."""
    late: int = 0
    """The caller gets a `BrokerError`, and the effect happens later, if ever. Only for what a cluster accepts late."""
    freeze: int = 0
    """The process stops until it is woken."""


class Scheduler:
    """Runs processes, one step at a time. Use it in a `with` block, which ends all processes."""

    def __init__(
        self,
        choices: Choices,
        cluster: SimulatedCluster,
        *,
        faults: Faults = Faults(),  # noqa: B008 (a tuple)
        expected: tuple[type[Exception], ...] = (),
        weight: int = 100,
    ) -> None:
        self.cluster, self.faults, self.expected = cluster, faults, expected
        self.processes: list[Process] = []
        self.greenlet = getcurrent()
        self.log: deque[str] = deque(maxlen=400)
        """What happened at the last steps."""
        self.actions: Callable[[], Iterable[Action]] = tuple
        """What the world around the processes can do now."""
        self._choices, self._weight = choices, weight

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in list(self.processes):
            self.kill(process)

    def choose(self, n: int, what: str) -> int:
        """Return a number from 0 to n - 1."""
        return self._choices.choose(n, what)

    def spawn(self, name: str, run: Callable[[Process], object]) -> Process:
        """Start a process. It stops at its first scheduling point."""
        process = Process(self, name, run)
        self.processes.append(process)
        self._resume(process)
        return process

    def kill(self, process: Process) -> None:
        """End a process at the point where it is. Its code is unwound, and nothing of it has an effect."""
        if process.ended:
            return
        process.killed = True
        with suppress(Killed, Exception):  # whatever the code does while it is unwound
            process.greenlet.throw(Killed)
        process.result = process.error = None
        self._end(process)

    def step(self) -> bool:
        """Let one thing happen, and tell whether anything could."""
        weight = self._weight
        ready = [process for process in self.processes if process.is_ready()]
        actions = [*self.cluster.actions(), *(Action(weight, "", partial(self.advance, p)) for p in ready)]
        actions += self.actions()
        actions += [Action(5, f"wake {p.name}", p.wake) for p in self.processes if p.frozen]
        total = sum([action.weight for action in actions])
        if not total:
            return False
        self.cluster.now_ms += 1
        chosen = self.choose(total, "who goes on")
        for action in actions:
            chosen -= action.weight
            if chosen < 0:
                if action.name:
                    self.log.append(action.name)
                action.run()
                break
        return True

    def run(self, steps: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Make up to this many steps, and tell whether `until` became true. It stops when nothing can happen.

        `until` may cost much: it is asked every 20 steps.
        """
        for number in range(steps):
            if not number % 20 and until():
                return True
            if not self.step():
                break
        return until()

    def settle(self, steps: int, until: Callable[[], bool]) -> bool:
        """Do as `run` without faults, by fair choices, and wake what is frozen: now all must come to an end."""
        faults, choices = self.faults, self._choices
        self.faults, self._choices = Faults(), RandomChoices(0)
        for process in self.processes:
            process.wake()
        try:
            return self.run(steps, until)
        finally:
            self.faults, self._choices = faults, choices

    def _fault(self, request: Request) -> str:
        """Choose a fault, or none. The highest numbers are the faults."""
        faults = self.faults
        total = sum(faults)
        if not total:
            return ""
        left = self.choose(10_000, "fault") - 10_000 + total
        if left < 0:
            return ""
        kind = next(k for k, end in zip(Faults._fields, accumulate(faults), strict=True) if left < end)
        if (kind in ("fail", "lose_answer") and not request.may_fail) or (kind == "late" and not request.may_be_late):
            return ""
        return kind

    def advance(self, process: Process) -> None:
        """Let the next request of a process happen, with a fault if one is chosen."""
        request = process.request
        assert request is not None
        fault = self._fault(request)
        self.log.append(f"{process.name}: {request.what}{fault and f' ({fault})'}")
        if fault == "freeze":
            process.frozen = True
        elif fault == "kill_before":
            if request.may_be_late and self.choose(2, "the request is under way"):
                self.cluster.in_flight.append((request.what, request.effect))
            self.kill(process)
        elif fault == "late":
            self.cluster.in_flight.append((request.what, request.effect))
            self._resume(process, error=BrokerError(f"{request.what} timed out"))
        elif fault == "fail":
            self._resume(process, error=BrokerError(f"{request.what} failed"))
        else:
            self._happen(process, request, fault)

    def _happen(self, process: Process, request: Request, fault: str) -> None:
        answer, error = None, None
        try:
            answer = request.effect()
        except Exception as raised:  # noqa: BLE001 (it is for the process)
            error = raised
        if process.ended:
            return  # the effect has killed it
        if fault == "kill_after":
            self.kill(process)
        elif fault == "lose_answer":
            self._resume(process, error=BrokerError(f"the answer to {request.what} was lost"))
        else:
            self._resume(process, answer, error)

    def _resume(self, process: Process, answer: object = None, error: Exception | None = None) -> None:
        process.request = None
        try:
            if error is None:
                process.greenlet.switch(answer)
            else:
                process.greenlet.throw(error)
        finally:
            if process.greenlet.dead:
                self._end(process)

    def _end(self, process: Process) -> None:
        process.ended, process.request = True, None
        self.processes.remove(process)
