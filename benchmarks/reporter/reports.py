"""What a report costs, and what the application's updates feel of it.

The live broker is librdkafka's own, inside the process: real producers, real acknowledgements, no network.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
import warnings
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tallystream.reporter import KafkaReporter, MetricRegistry, _turns, histogram
from tallystream.reporter.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream.reporter import Counter
    from tallystream.reporter.metric import Metric

LIVE: dict[str, Any] = {"bootstrap_servers": "in-process", "options": {"test.mock.num.brokers": 1}}
MIXES = {
    "1,000 counters": {"counter": 1000},
    "600 counters, 200 gauges, 200 meters": {"counter": 600, "gauge": 200, "meter": 200},
    "the same and 10 histograms that changed": {"counter": 590, "gauge": 200, "meter": 200, "histogram": 10},
    "the same and 100 histograms that changed": {"counter": 500, "gauge": 200, "meter": 200, "histogram": 100},
    "the same and 100 histograms that did not change": {"counter": 500, "gauge": 200, "meter": 200, "still": 100},
}

GOAL_MS, GOAL_WAIT_MS = 3, 1
INTERVAL, PAST = 10, 360
WAITING = histogram.BUFFER - 1
"""The most values of a histogram that a report can find waiting; those before were worked in by the updates."""

NEW_VALUES = histogram.BUFFER + WAITING


class Cost(NamedTuple):
    """One report: milliseconds that passed, and milliseconds of the processor's time."""

    passed: float
    worked: float


class Feel(NamedTuple):
    """How long an update waited at worst in a window, in ms: the median window, the 95th of 100, and the worst.

    `beyond` is how many windows of all had a wait beyond the goal.
    """

    median: float
    high: float
    worst: float
    beyond: int


def make_reporter(registry: MetricRegistry, where: dict[str, Any], **more: Any) -> KafkaReporter:
    """Return a reporter to the broker `where`."""
    return KafkaReporter(registry, instance="bench", own_metrics=False, **where, **more)


def fill(registry: MetricRegistry, mix: dict[str, int]) -> list[Metric]:
    """Make so many metrics of each type; `still` are histograms that `touch` may leave alone."""
    return [
        getattr(registry, "histogram" if kind == "still" else kind)(f"{kind}.number.{number}", tags={"topic": "orders"})
        for kind, count in mix.items()
        for number in range(count)
    ]


def touch(metrics: list[Any], draw: Random, values: int, *, still: bool) -> None:
    """Update each metric, histograms by as many values."""
    for metric in metrics:
        if metric.kind == "counter":
            metric.inc()
        elif metric.kind == "gauge":
            metric.set(draw.random())
        elif metric.kind == "meter":
            metric.mark()
        elif still or not metric.name.startswith("still"):
            for _ in range(values):
                metric.update(draw.lognormvariate(-3, 1))


class Application:
    """One that has run for an hour: samples are full, and thinned out every few minutes.

    Every INTERVAL seconds each of its metrics was updated, each histogram by NEW_VALUES, and all were read; the `still`
    ones have stopped.
    """

    def __init__(self, mix: dict[str, int]) -> None:
        self.clock = ManualClock()
        self.registry = MetricRegistry("bench", clock=self.clock)
        self._draw, self._metrics = Random(1), fill(self.registry, mix)
        for _ in range(PAST):
            self.work(still=True)
            self.registry.snapshot(views=False)

    def work(self, *, still: bool = False) -> None:
        """Let an interval pass, and update everything."""
        self.clock.advance(INTERVAL)
        touch(self._metrics, self._draw, NEW_VALUES, still=still)


def _hand_over(reporter: KafkaReporter) -> Cost:
    begin, began = time.perf_counter(), time.thread_time()
    assert reporter._hand_over(final=False)
    cost = Cost((time.perf_counter() - begin) * 1000, (time.thread_time() - began) * 1000)
    _wait_for_broker(reporter)
    return cost


def _wait_for_broker(reporter: KafkaReporter) -> None:
    while reporter._lives.under_way:
        reporter._link.poll(0.1)


def report_cost(mix: dict[str, int], rounds: int) -> Cost:
    """Return the means of taking a snapshot, encoding it and handing it to the producer.

    Not medians: what is put off, to be done for many reports at once, is part of the cost.
    """
    app = Application(mix)
    reporter = make_reporter(app.registry, LIVE)
    assert reporter.report_now(60)
    costs = []
    for _ in range(rounds):
        app.work()
        costs.append(_hand_over(reporter))
    reporter.stop()
    return Cost(*(statistics.fmean(each) for each in zip(*costs, strict=True)))


def peers_cost(rounds: int) -> dict[str, float]:
    """Return the milliseconds that peers take to write out 1,000 counters, medians."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pyformance
    import prometheus_client
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    collector, reader, registry = (
        prometheus_client.CollectorRegistry(),
        InMemoryMetricReader(),
        pyformance.MetricsRegistry(),
    )
    meter = MeterProvider(metric_readers=[reader]).get_meter("bench")
    for number in range(1000):
        prometheus_client.Counter(f"counter_number_{number}", "c", ["topic"], registry=collector).labels("orders").inc()
        meter.create_counter(f"counter.number.{number}").add(1, {"topic": "orders"})
        registry.counter(f"counter.number.{number}").inc()

    def otel() -> str:
        data = reader.get_metrics_data()
        assert data
        return str(data.to_json())

    sides: dict[str, Callable[[], object]] = {
        "prometheus_client": lambda: prometheus_client.generate_latest(collector),
        "pyformance": lambda: json.dumps(registry.dump_metrics()),
        "opentelemetry-sdk": otel,
    }
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, write in sides.items():
            begin = time.perf_counter()
            write()
            taken[name].append((time.perf_counter() - begin) * 1000)
    return {name: statistics.median(times) for name, times in taken.items()}


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
            _wait_for_broker(reporter)
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
            _hand_over(reporter)
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
    beyond = sum(wait > GOAL_WAIT_MS for wait in waits)
    return Feel(statistics.median(ordered), ordered[len(ordered) * 95 // 100], ordered[-1], beyond)
