"""Sources: reported beside the registry's own metrics, without breaking them, and without falling counts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import numpy as np
import pytest

from support.interpreter import run_program
from tallystream import ConfigError, MetricRegistry, record
from tallystream.bridges.base import Reading, to_integer
from tallystream.bridges.sources import FAILED, ResetAdjuster
from tallystream.metric_types import NAMES, TOTAL, TYPES
from tallystream.record import Counter, Gauge, Histogram, Metric, UpDown
from tallystream.testing import InMemoryReporter, ManualClock, assert_count, find

REPORTED = TYPES.keys() - {"buckets"}
"""The types that an application can report. Explicit buckets come from OpenTelemetry."""


class Fixed:
    """A source whose metrics the test sets; an exception among them is raised in its place."""

    kind = "fixed"

    def __init__(self, *metrics: Metric | Reading | BaseException) -> None:
        self.metrics: Iterable[Metric | Reading | BaseException] = metrics

    def read(self) -> Iterator[Reading]:
        """Return the metrics."""
        for metric in self.metrics:
            if isinstance(metric, BaseException):
                raise metric
            yield metric if isinstance(metric, Reading) else Reading(metric)


def failed(registry: MetricRegistry) -> int:
    """Return the number of failures of the source."""
    return registry.counter(FAILED, tags={"source": "fixed"}).count


def test_a_source_is_reported_beside_the_registrys_metrics(registry: MetricRegistry) -> None:
    """Every snapshot has its metrics with prefix and tags; its own tags take precedence."""
    source = Fixed(Counter(name="c", tags={"a": "b", "x": "own"}, count=3), Gauge(name="g", value=1.5))
    registry.counter("c").inc()
    registry.add_source(source, prefix="lib", tags={"x": "y"})
    assert_count(registry, "c", 1)
    assert_count(registry, "lib.c", 3, tags={"a": "b", "x": "own"})
    assert find(registry, "lib.g", tags={"x": "y"}) == Gauge(name="lib.g", tags={"x": "y"}, value=1.5)
    source.metrics = [Counter(name="c", tags={"a": "b", "x": "own"}, count=4)]
    assert_count(registry, "lib.c", 4, tags={"a": "b", "x": "own"})
    assert find(registry, "lib.g", tags={"x": "y"}) is None
    assert failed(registry) == 0


def test_a_source_is_added_once(registry: MetricRegistry) -> None:
    """Adding it again, or with an invalid prefix or tag, is a ConfigError."""
    source = Fixed()
    registry.add_source(source)
    with pytest.raises(ConfigError, match="source: 'fixed' can't be used; add it once"):
        registry.add_source(source)
    with pytest.raises(ConfigError, match="prefix"):
        registry.add_source(Fixed(), prefix="p" * 513)
    with pytest.raises(ConfigError, match="the tag 'a'"):
        registry.add_source(Fixed(), tags={"a": 1})  # type: ignore[dict-item]
    untouched = MetricRegistry("app")
    with pytest.raises(ConfigError, match="prefix"):
        untouched.add_source(Fixed(), prefix="p" * 513)
    assert untouched.metrics() == []


def test_a_source_that_raises_is_counted_and_breaks_nothing(
    registry: MetricRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """What it returned before, other sources and the registry's own metrics are reported."""
    registry.counter("own").inc()
    broken = Fixed(Counter(name="before", count=1), OSError("no such device"), Counter(name="after", count=1))
    registry.add_source(broken)
    registry.add_source(Fixed(Counter(name="other", count=1)))
    reporter = InMemoryReporter(registry, own_metrics=True)
    with caplog.at_level(logging.ERROR):
        assert reporter.report_now()
    names = {metric.name for metric in reporter.reports[-1]}
    assert {"own", "before", "other"} <= names
    assert "after" not in names
    assert reporter.failures == 0
    assert Counter(name=FAILED, tags={"source": "fixed"}, count=1) in reporter.reports[-1]
    assert "fixed of fixed is not reported: OSError: no such device" in caplog.text


def test_a_source_that_raises_no_exception_breaks_nothing(registry: MetricRegistry) -> None:
    """It is skipped like one that raises an Exception; only what the handler of a signal may raise passes."""
    registry.counter("own").inc()
    registry.add_source(Fixed(Counter(name="before", count=1), asyncio.CancelledError()))
    names = [metric.name for metric in registry.snapshot()]
    assert (names, failed(registry)) == (["own", FAILED, "before"], 1)
    registry.add_source(Fixed(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        registry.snapshot()


@pytest.mark.parametrize(
    "bad",
    [
        Counter(name="", count=1),
        Counter(name="n" * 513, count=1),
        Counter(name="c", tags={"t": "x" * 513}, count=1),
        Counter(name="c", count=-1),
        Counter(name="c", count=to_integer(float("inf"))),
        Counter(name="c", count=2**63),
        Gauge(name="own", value=1),
        Gauge(name="g", value="high"),  # type: ignore[arg-type]
        Gauge(name="g", value=10**400),
        Counter(name="good", count=7),
    ],
)
def test_invalid_metrics_of_a_source_are_skipped(registry: MetricRegistry, bad: Metric) -> None:
    """The other metrics are reported, and every record is valid."""
    registry.counter("own").inc()
    registry.add_source(Fixed(Counter(name="good", count=1), bad, Counter(name="last", count=1)))
    for times in (1, 2):
        metrics = registry.snapshot()
        assert [metric.name for metric in metrics] == ["own", FAILED, "good", "last"]
        assert failed(registry) == times
        assert metrics[-2:] == [Counter(name="good", count=1), Counter(name="last", count=1)]
    snapshot = record.Snapshot(
        app="app", life="0" * 26, part=0, seq=1, ts=0, every_ms=1000, final=False, metrics=metrics
    )
    assert record.decode(record.encode(snapshot)).metrics == metrics


def test_a_gauge_without_a_value_is_no_failure(registry: MetricRegistry) -> None:
    """NaN and infinity are skipped without a log line: libraries use them for missing values."""
    registry.add_source(Fixed(Gauge(name="a", value=float("nan")), Gauge(name="b", value=float("inf"))))
    assert [metric.name for metric in registry.snapshot()] == [FAILED]
    assert failed(registry) == 0


def test_streams_of_a_source_are_one_metric(registry: MetricRegistry, caplog: pytest.LogCaptureFixture) -> None:
    """Counts, sums and extremes are of all streams. Of two gauges, the second one is a failure."""
    low, high = Histogram(name="h", count=3, sum=4, min=1, max=2), Histogram(name="h", count=4, sum=20, min=3, max=9)
    found = [low, Gauge(name="twice", value=1), high, Gauge(name="twice", value=2)]
    registry.add_source(Fixed(*(Reading(metric, None, str(number)) for number, metric in enumerate(found))))
    both = Histogram(name="h", count=7, sum=24, min=1, max=9)
    assert registry.snapshot()[1:] == [both, Gauge(name="twice", value=1)]
    assert failed(registry) == 1
    assert "'twice' of fixed is not reported: the source has another metric of this name, type and tags" in caplog.text
    registry.reset_after_fork()
    assert find(registry, "h") == Histogram(name="h", count=0, sum=0)


def test_streams_of_which_one_has_no_sum_have_none(registry: MetricRegistry) -> None:
    """A sum of the others would be taken for that of all values."""
    one, other = Histogram(name="h", count=3, sum=4), Histogram(name="h", count=2)
    registry.add_source(Fixed(Reading(one, None, "0"), Reading(other, None, "1")))
    assert find(registry, "h") == Histogram(name="h", count=5, sum=None)


def test_two_sources_with_the_same_metric(registry: MetricRegistry, caplog: pytest.LogCaptureFixture) -> None:
    """The second source's metric is not reported, and the log says what to do."""
    registry.add_source(Fixed(Counter(name="same", count=1)))
    registry.add_source(Fixed(Counter(name="same", count=2)))
    assert_count(registry, "same", 1)
    assert "another source has a metric of this name, type and tags; give add_source a prefix" in caplog.text


@pytest.mark.parametrize("type_", sorted(REPORTED))
def test_every_number_of_another_library_is_reported_as_a_number(registry: MetricRegistry, type_: str) -> None:
    """One value of numpy in any field would prevent all metrics of the process from being reported."""
    fields = [name for name in record.CLASSES[type_].__struct_fields__ if name not in ("name", "tags", "sketch")]
    registry.add_source(Fixed(record.CLASSES[type_](name="m", **dict.fromkeys(fields, np.int64(3)))))
    found = find(registry, "m")
    assert [type(getattr(found, name)) for name in fields] == [int] * len(fields)


@pytest.mark.parametrize("type_", sorted(REPORTED))
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1e200])
def test_a_number_that_no_record_can_have_is_left_out(registry: MetricRegistry, type_: str, number: float) -> None:
    """Whichever field has it, the metric is not reported: the table would refuse it, or every sum with it."""
    for index, name in enumerate(NAMES[type_]):
        fields = dict.fromkeys(NAMES[type_], 1) | {name: number}
        if name != "value" and (number != -1e200 or adds_up(type_, name)):
            registry.add_source(Fixed(record.CLASSES[type_](name=f"m{index}", **fields)))
            assert find(registry, f"m{index}") is None


def adds_up(type_: str, name: str) -> bool:
    """Return whether a field is a total, or an offset."""
    return dict(TYPES[type_])[name] == TOTAL or type_ == "position"


def test_a_reset_is_detected_by_the_start_time() -> None:
    """A count that began after the last reading was reset, even if it is higher; small differences are ignored."""
    adjuster = ResetAdjuster()
    counts = []
    for now, count, began in [(10, 5, 1.0), (20, 6, 1.001), (30, 7, 25.0), (40, 8, 25.0), (50, 8, None), (60, 1, None)]:
        metric = adjuster.adjust(Reading(Counter(name="c", count=count), began), now)
        assert isinstance(metric, Counter)
        counts.append(metric.count)
    assert counts == [5, 6, 13, 14, 14, 15]


@pytest.mark.parametrize("type_", [Gauge, UpDown])
def test_nothing_is_kept_of_a_value_that_is_no_count(type_: type[Gauge | UpDown]) -> None:
    """Its tags may come and go for as long as the process lives, as those of connections."""
    adjuster = ResetAdjuster()
    for number in range(5):
        metric = type_(name="open", tags={"connection": str(number)}, value=number)
        assert adjuster.adjust(Reading(metric, None), 10) == metric
    assert not adjuster._streams


def test_a_reset_during_a_reading_is_detected(registry: MetricRegistry, clock: ManualClock) -> None:
    """The values before and after it are added, even if the new value is higher."""
    clock.advance(60)

    def slow() -> Iterator[Reading]:
        yield Reading(Counter(name="c", count=100), clock.wall_ms() / 1000 - 60)
        clock.advance(2)

    source = Fixed()
    source.metrics = slow()
    registry.add_source(source)
    assert_count(registry, "c", 100)
    source.metrics = [Reading(Counter(name="c", count=150), clock.wall_ms() / 1000 - 1)]
    assert_count(registry, "c", 250)


@pytest.mark.parametrize(("began", "expected"), [(0.001, 3), (61.0, 8)])
def test_a_child_detects_only_resets_after_the_fork(
    registry: MetricRegistry, clock: ManualClock, began: float, expected: int
) -> None:
    """A start time that is computed again, with a small difference, does not repeat the parent's counts."""
    started = clock.wall_ms() / 1000
    source = Fixed(Reading(Counter(name="c", count=5), started))
    registry.add_source(source)
    clock.advance(60)
    registry.reset_after_fork()
    source.metrics = [Reading(Counter(name="c", count=8), started + began)]
    clock.advance(60)
    assert_count(registry, "c", expected)
    assert_count(registry, "c", expected)


class Running:
    """A source that counts while it is read."""

    kind = "running"

    def __init__(self) -> None:
        self.count = 0

    def read(self) -> Iterator[Reading]:
        """Return the count, which other threads increment meanwhile."""
        self.count += 1
        count = self.count
        time.sleep(0)  # give another thread the chance to run
        yield Reading(Counter(name="c", count=count))


def test_concurrent_snapshots_detect_no_false_reset(registry: MetricRegistry) -> None:
    """Snapshots of several threads read the source one after the other."""
    source = Running()
    registry.add_source(source)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: registry.snapshot(), range(2000)))
    assert_count(registry, "c", 2001)
    assert source.count == 2001


class Curious:
    """A source that reads the registry while it is read, as a callback of prometheus_client may do."""

    kind = "curious"

    def __init__(self, registry: MetricRegistry, seconds: float = 0.0) -> None:
        self._registry, self._seconds = registry, seconds

    def read(self) -> Iterator[Reading]:
        """Return the number of metrics that a snapshot has meanwhile."""
        time.sleep(self._seconds)
        yield Reading(Gauge(name="g", value=len(self._registry.snapshot())))


def snapshots(registry: MetricRegistry, number: int) -> list[list[str]]:
    """Take snapshots in so many threads at once, and return the names of the metrics of each."""
    found: list[list[str]] = []
    threads = [
        Thread(target=lambda: found.append([metric.name for metric in registry.snapshot()]), daemon=True)
        for _ in range(number)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found


def test_a_source_may_read_the_registry(registry: MetricRegistry) -> None:
    """The snapshot that it takes has the registry's own metrics, and no source's."""
    registry.counter("own").inc()
    registry.add_source(Curious(registry))
    assert snapshots(registry, 1) == [["own", FAILED, "g"]]
    assert find(registry, "g") == Gauge(name="g", value=2)


def test_sources_that_read_the_registry_do_not_wait_for_each_other(registry: MetricRegistry) -> None:
    """Two threads that read two of them at the same time both end."""
    for prefix in "ab":
        registry.add_source(Curious(registry, seconds=0.05), prefix=prefix)
    assert snapshots(registry, 2) == [[FAILED, "a.g", "b.g"]] * 2


FORKS = """
    import logging, os, sys, threading
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    from tallystream.bridges import sources as _sources; from tallystream import MetricRegistry
    from tallystream.record import Counter, Gauge
    from tallystream.bridges.base import Reading
    _sources.WAIT_IN_CHILD = 0.2
    class Library:
        kind = "library"
        def __init__(self):
            self.count, self.lock = 5, threading.Lock()
        def read(self):
            with self.lock:
                yield Reading(Counter(name="c", count=self.count))
    registry, library = MetricRegistry("orders"), Library()
    registry.add_source(library)
    def show(who):
        print(who, [(m.name.rpartition(".")[2], m.count) for m in registry.snapshot()], flush=True)
    def fork(who):
        child = os.fork()
        if child:
            return os.waitpid(child, 0)
        library.count += 2
        show(who)
        os._exit(0)
    show("parent")
    fork("child")
    held, go = threading.Event(), threading.Event()
    def hold():
        with library.lock:
            held.set(); go.wait()
    thread = threading.Thread(target=hold); thread.start(); held.wait()
    fork("child")
    go.set(); thread.join()
    show("parent")
"""


def test_a_forked_child_reports_a_source_from_zero_and_never_hangs() -> None:
    """If the library's lock was held at the fork, the child reports nothing and logs it."""
    assert run_program(FORKS).splitlines() == [
        "parent [('failed', 0), ('c', 5)]",
        "child [('failed', 0), ('c', 2)]",
        "library of library is not reported: it could not be read when this process was forked off its parent",
        "child [('failed', 1)]",
        "parent [('failed', 0), ('c', 5)]",
    ]
