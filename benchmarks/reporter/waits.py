"""What the application's updates feel of a report: turns for which its thread keeps the GIL, and waits by the clock."""

from __future__ import annotations

import statistics
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Self

from reports import LIVE, Application, hand_over, make_reporter, wait_for_broker

from tallystream.reporter import _turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream.reporter import Counter

GOAL_MS = 1


class Feel(NamedTuple):
    """How long an update waited at worst in a window, in ms: the median window, the 95th of 100, and the worst.

    `beyond` is how many windows of all had a wait beyond the goal.
    """

    median: float
    high: float
    worst: float
    beyond: int


@contextmanager
def turns_of_this_thread() -> Iterator[list[float]]:
    """Yield the turns that this thread takes in the block, all of them at its end: processor milliseconds of each."""
    turns: list[float] = []
    began = time.thread_time()

    def sleep(seconds: float) -> None:
        nonlocal began
        turns.append((time.thread_time() - began) * 1000)
        time.sleep(seconds)
        began = time.thread_time()

    original, _turns.sleep = _turns.sleep, sleep
    try:
        yield turns
        turns.append((time.thread_time() - began) * 1000)
    finally:
        _turns.sleep = original


class Busy:
    """A thread that does nothing but `counter.inc()`, and how long that took at worst, in ms, in each window of time.

    Each window has a place of its own, which nobody sets back while the thread measures.
    """

    def __init__(self, counter: Counter) -> None:
        self._inc, self._worst, self._ended = counter.inc, [0.0], False
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._thread.join()

    def worst_during(self, act: Callable[[], object]) -> float:
        """Return the longest wait from the beginning of `act` to its end."""
        window = len(self._worst)
        self._worst.append(0.0)
        act()
        time.sleep(0.001)  # who has waited till now takes note of it before the window ends
        self._worst.append(0.0)
        return self._worst[window] * 1000

    def _work(self) -> None:
        clock, inc, worst, last = time.perf_counter, self._inc, self._worst, time.perf_counter()
        while not self._ended:
            for _ in range(1000):
                inc()
                now = clock()
                window = len(worst) - 1  # the same one is read and written, should the next one begin between
                worst[window] = max(worst[window], now - last)
                last = now


def longest_turn(mix: dict[str, int], rounds: int) -> tuple[float, float]:
    """Return for how long the reporter's thread kept the GIL at worst in a report: processor ms, median and worst.

    Another thread is at work all the time, so that little of what a report needs is in the processor's caches. Unlike a
    wait it does not depend on what else the machine does.
    """
    app = Application(mix)
    reporter = make_reporter(app.registry, LIVE)
    assert reporter.report_now(60)
    longest = []
    with Busy(app.registry.counter("busy")):
        for _ in range(rounds):
            app.work()
            time.sleep(0.02)
            with turns_of_this_thread() as turns:
                assert reporter._hand_over(final=False)
            longest.append(max(turns))
            wait_for_broker(reporter)
    reporter.stop()
    return statistics.median(longest), max(longest)


def longest_waits(mix: dict[str, int], rounds: int) -> dict[str, Feel]:
    """Return how long `counter.inc()` waited at worst in a thread that does nothing else, while another one reports.

    And while another one takes the GIL as often as a report does, and gives it up at once: that much is the operating
    system's, which has to wake a thread each time. And while nobody else does anything, for as long as the report took.
    """
    app = Application(mix)
    reporter = make_reporter(app.registry, LIVE)
    assert reporter.report_now(60)
    times, seconds = 0, 0.0

    def report() -> None:
        nonlocal times, seconds
        begin = time.perf_counter()
        with turns_of_this_thread() as turns:
            hand_over(reporter)
        times = len(turns) - 1  # after the last one none follows
        seconds = time.perf_counter() - begin

    def take_turns() -> None:
        for _ in range(times):
            time.sleep(_turns.CROWDED.moment)

    kinds: dict[str, Callable[[], object]] = {
        "a report": report,
        "as many turns without any work": take_turns,
        "nobody else": lambda: time.sleep(seconds),
    }
    windows: dict[str, list[float]] = {kind: [] for kind in kinds}
    with Busy(app.registry.counter("busy")) as busy:
        for _ in range(rounds):
            app.work()
            for kind, act in kinds.items():
                time.sleep(0.02)
                windows[kind].append(busy.worst_during(act))
    reporter.stop()
    return {kind: _feel(found) for kind, found in windows.items()}


def _feel(waits: list[float]) -> Feel:
    ordered = sorted(waits)
    beyond = sum(wait > GOAL_MS for wait in waits)
    return Feel(statistics.median(ordered), ordered[len(ordered) * 95 // 100], ordered[-1], beyond)
