"""The registry: its metrics, its errors, and the consistency of a snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from importlib.metadata import version

import confluent_kafka
import pytest

import tallystream
from support.scripted_producer import KafkaBench
from tallystream import ConfigError, ConsumerProgress, MetricRegistry, MetricTypeError, record
from tallystream.testing import InMemoryReporter, ManualClock, assert_count, find


def test_a_name_with_tags_is_one_object(registry: MetricRegistry) -> None:
    """The same name and tags, in any order, return the same object; other tags return another."""
    one = registry.counter("c", tags={"a": "1", "b": "2"})
    assert registry.counter("c", tags={"b": "2", "a": "1"}) is one
    assert registry.counter("c") is not one
    assert one.identity == ("c", "counter", (("a", "1"), ("b", "2")))


def test_a_name_with_another_type_is_an_error_that_names_both(registry: MetricRegistry) -> None:
    """A counter that is requested as a timer raises MetricTypeError, with any tags."""
    registry.counter("c").inc()
    with pytest.raises(MetricTypeError, match="'c' is a counter already, so it can't be a timer"):
        registry.timer("c", tags={"x": "y"})
    assert_count(registry, "c", 1)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda r: r.counter(""), "the name of a metric"),
        (lambda r: r.counter("n" * 513), "the name of a metric"),
        (lambda r: r.counter(3), "the name of a metric"),
        (lambda r: r.counter("a\0b"), "the name of a metric"),
        (lambda r: r.counter("\ud800"), "the name of a metric"),
        (lambda r: r.gauge("g", tags={"": "x"}), "a tag's name of 'g'"),
        (lambda r: r.gauge("g", tags={"t" * 129: "x"}), "a tag's name of 'g'"),
        (lambda r: r.meter("m", tags={"t": "x" * 513}), "the tag 't' of 'm'"),
        (lambda r: r.meter("m", tags={"t": 1}), "the tag 't' of 'm'"),
        (lambda r: r.timer("t", tags={str(i): "" for i in range(33)}), "tags of 't'"),
        (lambda r: r.counter("c", "orders"), "tags of 'c'"),
        (lambda r: r.gauge("g", tags=["topic", "orders"]), "tags of 'g'"),
        (lambda r: r.child("c", tags=5), "tags of 'c'"),
        (lambda r: r.child("x").timer("c", tags="orders"), "tags of 'x.c'"),
        (lambda r: r.position("t", 0, tags=5), "tags of 'consumer.position'"),
        (lambda r: r.gauge("g", {"topic": "orders"}), "function of 'g'"),
        (lambda r: r.gauge("g", 0.0), "function of 'g'"),
        (lambda _: MetricRegistry(""), "app"),
    ],
)
def test_names_and_tags_are_checked_at_creation(
    registry: MetricRegistry, make: Callable[[MetricRegistry], object], field: str
) -> None:
    """What the record does not accept, or can't be called, is rejected at once, and nothing is registered."""
    with pytest.raises(ConfigError) as caught:
        make(registry)
    assert caught.value.field == field
    assert registry.metrics() == []


def test_the_longest_names_and_tags_are_valid_in_the_record(registry: MetricRegistry) -> None:
    """The record's decoder accepts every name and tag that the registry accepts."""
    registry.counter("n" * 512, tags={f"{i:0128}": "ü" * 512 for i in range(32)}).inc()
    snapshot = record.Snapshot(
        app="app", life="0" * 26, part=0, seq=1, ts=0, every_ms=1000, final=False, metrics=registry.snapshot()
    )
    assert record.decode(record.encode(snapshot)).metrics == snapshot.metrics


class Text(str):
    """Text of another type, such as numpy's or markupsafe's."""

    __slots__ = ()

    def __str__(self) -> str:
        return "another text"


class Topic(str, Enum):  # noqa: UP042 - `str()` of it is not its value, unlike that of a StrEnum
    """A topic, as an application may name it."""

    ORDERS = "orders"


def test_text_of_another_type_is_reported(clock: ManualClock) -> None:
    """Names, tags, app and instance become plain texts, which can be encoded. An enum becomes its value."""
    registry = MetricRegistry(Text("app"), clock=clock)
    counter = registry.counter(Text("rows"), {Text("topic"): Topic.ORDERS})
    counter.inc()
    assert counter is registry.counter("rows", {"topic": "orders"}) is counter.labels(topic=Text("orders"))
    assert counter is registry.child(tags={"topic": Text("orders")}).counter("rows")
    bench = KafkaBench(instance=Text("i-1"), topic=Text("metrics"))
    texts = [
        registry.app,
        bench.reporter.instance,
        bench.reporter.topic,
        counter.name,
        *counter.tags,
        *registry._metrics,
    ]
    assert texts == ["app", "i-1", "metrics", "rows", "topic", "rows"]
    assert {type(text) for text in [*texts, *counter.tags.values()]} == {str}
    assert registry.snapshot() == [record.Counter(name="rows", tags={"topic": "orders"}, count=1)]


def test_a_snapshot_never_splits_an_atomic_block(registry: MetricRegistry) -> None:
    """While a thread updates metrics of all types in atomic(), every snapshot has equal values."""
    counter, updown, meter = registry.counter("c"), registry.updown("u"), registry.meter("m")
    histogram, timer, gauge = registry.histogram("h"), registry.timer("t"), registry.gauge("g")
    gauge.set(0)
    done = threading.Event()

    def move() -> None:
        for number in range(1, 5_001):
            with registry.atomic():
                counter.inc()
                histogram.update(1)
                gauge.set(number)
                updown.inc()
                timer.update(1)
                meter.mark()
        done.set()

    thread = threading.Thread(target=move)
    thread.start()
    try:
        seen = 0
        while not done.is_set() or not seen:
            found = [getattr(m, "count", getattr(m, "value", None)) for m in registry.snapshot()]
            assert found == [found[0]] * 6
            seen += 1
    finally:
        thread.join()
    assert counter.count == 5_000


def test_a_snapshot_never_splits_a_gauge_from_a_counter_in_an_atomic_block(registry: MetricRegistry) -> None:
    """Also if both are updated while functions of other gauges run."""
    height = registry.gauge("height")
    height.set(0)

    def move() -> float:
        with registry.atomic():
            height.set(count.count + 1)
            count.inc()
        return 0.0

    registry.gauge("mover", move)
    count = registry.counter("count")
    for number in range(1, 4):
        values = {metric.name: metric for metric in registry.snapshot()}
        assert values["count"] == record.Counter(name="count", count=number)
        assert values["height"] == record.Gauge(name="height", value=number)


def test_no_metrics_are_no_group(registry: MetricRegistry) -> None:
    """An application may colocate the metrics of a list that is empty."""
    registry.colocate()
    assert registry.groups() == {}


def test_a_gauge_may_read_the_registry(registry: MetricRegistry) -> None:
    """A snapshot that a function of a gauge takes has no such gauges: each is computed once, and not by itself."""
    registry.counter("c").inc(3)
    calls: list[str] = []

    def read(name: str) -> float:
        calls.append(name)
        return len(registry.snapshot()) if len(calls) < 10 else 0

    registry.gauge("a", lambda: read("a"))
    registry.gauge("b", lambda: read("b"))
    assert registry.snapshot() == [
        record.Counter(name="c", count=3),
        record.Gauge(name="a", value=1),
        record.Gauge(name="b", value=1),
    ]
    assert calls == ["a", "b"]


def test_the_version_is_that_of_the_distribution() -> None:
    """`__version__` comes from the package's metadata."""
    assert tallystream.__version__ == version("tallystream")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tallystream.nothing  # type: ignore[attr-defined]


def test_the_error_of_a_registry_without_a_reporter_names_report(registry: MetricRegistry) -> None:
    """`registry.reporter` is the reporter that `report()` started; before that, it raises AttributeError."""
    with pytest.raises(AttributeError, match=r"^the registry 'app' has no reporter; .*report\('app', registry="):
        _ = registry.reporter
    assert not hasattr(registry, "reporter")


def test_a_gauge_may_wait_for_a_thread_that_needs_the_registry(registry: MetricRegistry) -> None:
    """A snapshot calls its function before it takes the lock, and does not wait for ever."""

    def update() -> float:
        with registry.atomic():
            return 1.0

    with ThreadPoolExecutor(1) as pool:
        registry.gauge("g", lambda: pool.submit(update).result(10))
        assert registry.snapshot() == [record.Gauge(name="g", value=1.0)]


def test_the_testing_helpers_report_what_they_found(registry: MetricRegistry) -> None:
    """The messages of failed assertions list the existing names or tags."""
    registry.counter("c", tags={"a": "b"}).inc(3)
    assert_count(registry, "c", 3, tags={"a": "b"})
    assert find(registry, "c") is None
    with pytest.raises(AssertionError, match=r"^no metric 'd' with the tags {}; the registry has 'c'$"):
        assert_count(registry, "d", 1)
    registry.counter("c", tags={"a": "x"})
    registry.counter("e").inc()
    with pytest.raises(AssertionError, match=r"^no metric 'd' with the tags {}; the registry has 'c' and 'e'$"):
        assert_count(registry, "d", 1)
    with pytest.raises(AssertionError, match=r"^no metric 'c' with the tags {}; it has {'a': 'b'} and {'a': 'x'}$"):
        assert_count(registry, "c", 1)
    with pytest.raises(AssertionError, match=r"^no metric 'e' with the tags {'a': 'b'}; it has {}$"):
        assert_count(registry, "e", 1, {"a": "b"})
    with pytest.raises(AssertionError, match=r"^no metric 'c' with the tags {}; the registry has none$"):
        assert_count(MetricRegistry("empty"), "c", 1)
    with pytest.raises(AssertionError, match="'c' counted 3, not 4"):
        assert_count(registry, "c", 4, tags={"a": "b"})
    reporter = InMemoryReporter(registry)
    assert reporter.report_now()
    assert reporter.stop()
    assert reporter.reports == [registry.snapshot()] * 2


def test_a_scoped_registry_adds_a_prefix_and_tags(registry: MetricRegistry) -> None:
    """Its metrics belong to the registry; a nested one adds both prefixes."""
    http = registry.child("http", tags={"listener": "public", "zone": "a"})
    requests = http.counter("requests", tags={"zone": "b"})
    assert requests is registry.counter("http.requests", tags={"listener": "public", "zone": "b"})
    inner = http.child("inner", tags={"x": "y"})
    with inner.atomic():
        inner.timer("t").update(1)
    assert_count(registry, "http.inner.t", 1, tags={"listener": "public", "zone": "a", "x": "y"})
    tagged = registry.child(tags={"only": "tags"})
    assert tagged.gauge("g").identity == ("g", "gauge", (("only", "tags"),))
    progress = ConsumerProgress(http, "seen")
    progress.processed([confluent_kafka.Message(topic="t", partition=0, offset=1)])
    assert {identity[0] for identity in registry.groups()} == {"http.seen", "http.seen.position"}
    with pytest.raises(MetricTypeError, match=r"'http\.requests' is a counter already"):
        http.meter("requests")
    with pytest.raises(ConfigError, match="prefix"):
        registry.child("p" * 513)
    with pytest.raises(ConfigError, match="the name of a metric"):
        http.counter("")
