"""Requests for metrics that a finalizer or a signal handler interrupts, which requests metrics too."""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

from tallystream import MetricRegistry, MetricTypeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tallystream.testing import ManualClock


POINT = "opcode" if sys.version_info < (3, 12) else "line"
"""The event of a trace at which a request is interrupted. Python 3.13 traces opcodes only once in a thread."""


class Interruption:
    """A trace function that calls a function before one instruction or line of `MetricRegistry.get`, counted from 0."""

    def __init__(self, instruction: int, call: Callable[[], object]) -> None:
        self._left, self._call = instruction, call

    @property
    def is_over(self) -> bool:
        """Whether there was such an instruction."""
        return self._left < 0

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        """Trace that function, and none that it calls."""
        if event == "call":
            is_request = frame.f_code is MetricRegistry.get.__code__
            frame.f_trace_opcodes = is_request and POINT == "opcode"
            return self.trace if is_request else None
        if event == POINT:
            self._left -= 1
            if self._left == -1:
                self._call()
        return self.trace


def interrupt_everywhere(test: Callable[[Callable[[Callable[[], object], Callable[[], object]], None]], None]) -> int:
    """Call `test` once for each instruction or line of a request, in a thread that must end; return how often.

    The test receives a function `interrupted(request, call)`: it requests metrics, and `call` interrupts that.
    """
    done: list[int] = []

    def run() -> None:
        instruction, is_over = 0, True

        def interrupted(request: Callable[[], object], call: Callable[[], object]) -> None:
            nonlocal is_over
            interruption, trace = Interruption(instruction, call), sys.gettrace()
            sys.settrace(interruption.trace)
            try:
                request()
            finally:
                sys.settrace(trace)
            is_over = interruption.is_over

        while is_over:
            test(interrupted)
            instruction += 1
        done.append(instruction)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    assert done, "a request waits for itself, or the test failed in its thread"
    return done[0]


def test_an_interrupted_request_returns_the_same_metric(clock: ManualClock) -> None:
    """The interrupting code gets the same object without waiting, so no count is lost."""

    def test(interrupted: Any) -> None:
        registry = MetricRegistry("app", clock=clock)

        def count() -> None:
            registry.counter("c", {"a": "b"}).inc()

        def interrupting() -> None:
            count()
            registry.counter("c", {"a": "c"}).inc()

        interrupted(count, interrupting)
        interrupting()
        assert registry.counter("c", {"a": "b"}).count in (2, 3)
        assert registry.counter("c", {"a": "c"}).count in (1, 2)
        assert len(registry.snapshot()) == 2

    assert interrupt_everywhere(test) > 5


def test_a_name_keeps_one_type(clock: ManualClock) -> None:
    """If the interrupting code requests the name with another type, one of the two requests is an error."""

    def test(interrupted: Any) -> None:
        registry = MetricRegistry("app", clock=clock)

        def time() -> None:
            with suppress(MetricTypeError):
                registry.timer("name")

        with suppress(MetricTypeError):
            interrupted(lambda: registry.counter("name", {"a": "b"}), time)
        assert len(registry.metrics()) == 1

    assert interrupt_everywhere(test) > 5


def test_every_distribution_keeps_a_sample(clock: ManualClock) -> None:
    """Also one that is created while a reporter that shows samples is created."""

    def test(interrupted: Any) -> None:
        registry = MetricRegistry("app", clock=clock)
        interrupted(lambda: registry.histogram("h"), registry.keep_samples)
        assert registry.histogram("h")._is_sampled == registry._keeps_samples

    assert interrupt_everywhere(test) > 5
