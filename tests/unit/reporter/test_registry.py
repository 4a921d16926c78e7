"""The registry: identity, errors, and what a snapshot may not tear apart."""

from __future__ import annotations

import math
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import confluent_kafka
import msgspec
import numpy as np
import pytest
from aiokafka import ConsumerRecord
from confluent_kafka import KafkaError

import tallystream.reporter
from tallystream.reporter import ConfigError, ConsumerProgress, MetricRegistry, MetricTypeError, record
from tallystream.reporter.source import Reading
from tallystream.reporter.testing import (
    InMemoryReporter,
    assert_count,
    assert_not_reported,
    find,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tallystream.reporter.testing import ManualClock


def test_one_object_for_a_name_and_its_tags(registry: MetricRegistry) -> None:
    """The same name and tags, in any order, give the same object; other tags give another."""
    one = registry.counter("c", tags={"a": "1", "b": "2"})
    assert registry.counter("c", tags={"b": "2", "a": "1"}) is one
    assert registry.counter("c") is not one
    assert one.identity == ("c", "counter", (("a", "1"), ("b", "2")))


def test_threads_get_the_same_object(registry: MetricRegistry) -> None:
    """Many threads that ask for the same new metric at once share one, so that nothing counted is lost."""
    barrier = threading.Barrier(8)

    def ask(_: int) -> object:
        barrier.wait()
        return [registry.counter(f"c{i}") for i in range(200)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(ask, range(8)))
    assert all(result == results[0] for result in results)


def test_a_name_with_another_type_is_an_error_that_names_both(registry: MetricRegistry) -> None:
    """A counter asked for as a timer is refused, whatever the tags, and the counter stays."""
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
        (lambda _: MetricRegistry(""), "app"),
    ],
)
def test_names_and_tags_are_checked_where_they_are_made(
    registry: MetricRegistry, make: Callable[[MetricRegistry], object], field: str
) -> None:
    """What the record would refuse is refused at once, and nothing is registered."""
    with pytest.raises(ConfigError) as caught:
        make(registry)
    assert caught.value.field == field
    assert registry.metrics() == []


def test_the_longest_names_and_tags_make_a_good_record(registry: MetricRegistry) -> None:
    """What creation lets through, the record's decoder takes."""
    registry.counter("n" * 512, tags={f"{i:0128}": "ü" * 512 for i in range(32)}).inc()
    snapshot = record.Snapshot(
        app="app", life="0" * 26, part=0, seq=1, ts=0, every_ms=1000, final=False, metrics=registry.snapshot()
    )
    assert record.decode(record.encode(snapshot)).metrics == snapshot.metrics


class Interruption:
    """A trace function that raises KeyboardInterrupt before one line of `MetricRegistry.get`, counted from 0.

    The end of a `with` block, which is traced as its first line again, is no place where Python handles a signal.
    """

    def __init__(self, line: int) -> None:
        self.left, self.last = line, 0

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        """Trace that function, and none that it calls."""
        if event == "call":
            return self.trace if frame.f_code is MetricRegistry.get.__code__ else None
        if event == "line" and frame.f_lineno > self.last:
            self.left, self.last = self.left - 1, frame.f_lineno
            if self.left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self.trace


def test_an_interrupt_while_a_metric_is_made_leaves_none_that_is_not_reported(clock: ManualClock) -> None:
    """Whichever line Ctrl-C interrupts, the metric is there or it is not; and no name without one keeps its type."""
    lines = 0
    while True:
        registry, trace = MetricRegistry("app", clock=clock), sys.gettrace()
        sys.settrace(Interruption(lines).trace)
        try:
            registry.counter("c")
        except KeyboardInterrupt:
            lines += 1
        else:
            break
        finally:
            sys.settrace(trace)
        made = registry.metrics()
        assert [(each.kind, each.name) for each in made] == [(each.type, each.name) for each in registry.snapshot()]
        (registry.counter("c") if made else registry.updown("c")).inc()
        [found] = registry.snapshot()
        assert (found.name, found.type) == ("c", "counter" if made else "updown")
    assert lines > 5


def test_snapshot_has_every_metric_that_has_a_value(registry: MetricRegistry) -> None:
    """Each type appears in the record's form; an unset gauge and a position that is nowhere do not."""
    registry.counter("c").inc(2)
    registry.updown("u").dec(1.5)
    registry.gauge("g").set(7)
    registry.gauge("unset")
    registry.position("t", 0)
    assert registry.snapshot() == [
        record.Counter(name="c", count=2),
        record.UpDown(name="u", value=-1.5),
        record.Gauge(name="g", value=7),
    ]


def test_no_snapshot_separates_what_is_set_together(registry: MetricRegistry) -> None:
    """While one thread moves two counters in together(), every snapshot of another sees them equal."""
    one, two = registry.counter("one"), registry.counter("two")
    done = threading.Event()

    def move() -> None:
        for _ in range(20_000):
            with registry.together():
                one.inc()
                two.inc()
        done.set()

    thread = threading.Thread(target=move)
    thread.start()
    try:
        seen = 0
        while not done.is_set() or not seen:
            counts = {m.name: m.count for m in registry.snapshot() if isinstance(m, record.Counter)}
            assert counts["one"] == counts["two"]
            seen += 1
    finally:
        thread.join()
    assert one.count == 20_000


def test_a_gauge_that_is_set_together_with_a_counter_is_not_separated_from_it(registry: MetricRegistry) -> None:
    """Also where both move while the functions of other gauges are asked, as here by such a function itself."""
    height = registry.gauge("height")
    height.set(0)

    def move() -> float:
        with registry.together():
            height.set(count.count + 1)
            count.inc()
        return 0.0

    registry.gauge("mover", move)
    count = registry.counter("count")
    for number in range(1, 4):
        values = {metric.name: metric for metric in registry.snapshot()}
        assert values["count"] == record.Counter(name="count", count=number)
        assert values["height"] == record.Gauge(name="height", value=number)


@pytest.mark.parametrize("value", [math.nan, -math.inf, 10**400])
def test_a_gauge_that_is_set_to_no_finite_number_is_left_out(
    registry: MetricRegistry, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are reported, and the next value is; the log says which gauge it was, once."""
    gauge, name = registry.gauge(f"set.to.{value!s:.5}"), f"set.to.{value!s:.5}"
    registry.counter("c").inc()
    gauge.set(value)
    assert registry.snapshot() == registry.snapshot() == [record.Counter(name="c", count=1)]
    assert caplog.text.count(f"'{name}' is left out") == 1
    gauge.set(2.5)
    assert record.Gauge(name=name, value=2.5) in registry.snapshot()


NUMBERS: dict[str, tuple[Any, float]] = {
    "numpy.float64": (np.float64(1.5), 1.5),
    "numpy.float32": (np.float32(1.5), 1.5),
    "numpy.int64": (np.int64(3), 3),
    "Fraction": (Fraction(3, 2), 1.5),
    "Decimal": (Decimal("1.5"), 1.5),
    "bool": (True, 1),
    "IntEnum": (HTTPStatus.OK, 200),
}


@pytest.mark.parametrize(("given", "wanted"), NUMBERS.values(), ids=NUMBERS)
def test_numbers_of_other_libraries_are_reported_as_numbers(
    registry: MetricRegistry, given: Any, wanted: float
) -> None:
    """Whatever a metric is given that is a number, the record has an int or a float; so no metric keeps others away."""
    registry.gauge("set").set(given)
    registry.gauge("asked", lambda: given)
    registry.updown("moved").inc(given)
    registry.histogram("taken").update(given)
    registry.timer("timed").update(given)
    registry.add_source(Given([record.Gauge(name="read", value=given), record.UpDown(name="read.too", value=given)]))
    if wanted == int(wanted):
        registry.counter("counted").inc(given)
        registry.position("orders", 0).cover(0, given)
    snapshot = registry.snapshot()
    read = msgspec.json.decode(msgspec.json.encode(snapshot))
    assert len(read) >= 8
    for metric in read:
        for field in {"value", "min", "max", "sum", "position"} & metric.keys():
            assert metric[field] == wanted
            assert type(metric[field]) in (int, float)
    gauge = registry.gauge("set").read()
    assert gauge is not None
    assert type(gauge.value) in (int, float)


@pytest.mark.parametrize("text", ["a", "1", b"1", [1], None, 1j])
def test_what_is_no_number_is_refused_at_once(registry: MetricRegistry, text: Any) -> None:
    """Every metric that takes numbers says so in one sentence, and keeps what it had."""
    gauge = registry.gauge("g")
    gauge.set(3)
    updates = [gauge.set, registry.updown("u").inc, registry.histogram("h").update, registry.timer("t").update]
    before = registry.snapshot()
    for update in updates:
        with pytest.raises(TypeError, match=r"^.+ is no number: give an int, a float, or another real number\.$"):
            update(text)
    assert registry.snapshot() == before
    assert gauge.value == 3


def test_tags_by_position(registry: MetricRegistry) -> None:
    """Tags may follow the name without `tags=`; in the place of a gauge's function they are refused."""
    tags = {"topic": "orders"}
    assert registry.counter("c", tags) is registry.counter("c", tags=tags)
    assert registry.updown("u", tags) is registry.updown("u", tags=tags)
    assert registry.meter("m", tags) is registry.meter("m", tags=tags)
    assert registry.histogram("h", tags) is registry.histogram("h", tags=tags)
    assert registry.timer("t", tags) is registry.timer("t", tags=tags)
    assert registry.position("orders", 0, tags) is registry.position("orders", 0, tags=tags)
    assert registry.child("a", tags).counter("c").tags == tags
    assert ConsumerProgress(registry, "seen", tags).counter.tags == tags
    with pytest.raises(
        ConfigError, match=r"^function of 'g': {'topic': 'orders'} can't be used; .*tags={'topic': "
    ) as caught:
        registry.gauge("g", tags)  # type: ignore[arg-type]
    assert caught.value.field == "function of 'g'"
    assert [metric.name for metric in registry.metrics() if metric.kind == "gauge"] == []


@pytest.mark.parametrize("wrong", ["orders", ["topic", "orders"], 5])
def test_tags_that_are_no_mapping_are_one_sentence(registry: MetricRegistry, wrong: Any) -> None:
    """Whatever is asked for tags, it names the metric and shows how tags look."""
    asked = [registry.counter, registry.gauge, registry.child("x").timer, registry.child]
    for ask in asked:
        with pytest.raises(ConfigError, match=r"^tags of '(x\.)?c': .* can't be used; give a mapping, such as {"):
            ask("c", tags=wrong)
    with pytest.raises(ConfigError, match=r"^tags of 'consumer\.position'"):
        registry.position("t", 0, tags=wrong)
    assert registry.metrics() == []


def test_representations_say_what_it_is(registry: MetricRegistry) -> None:
    """A registry, its children, a consumer's progress and reporters name themselves."""
    registry.counter("c").inc()
    assert repr(registry) == "<MetricRegistry 'app' with 1 metric>"
    registry.counter("d").inc()
    assert repr(registry) == "<MetricRegistry 'app' with 2 metrics>"
    child = registry.child("http", {"a": "b"})
    assert repr(child) == "<Child 'http' tags={'a': 'b'} of <MetricRegistry 'app' with 2 metrics>>"
    assert repr(ConsumerProgress(child, "seen")) == "<ConsumerProgress 'http.seen', tags={'a': 'b'}>"
    assert repr(InMemoryReporter(registry)) == "<InMemoryReporter of 'app'>"


def test_dir_has_what_applications_use(registry: MetricRegistry) -> None:
    """What only snapshots and forks call is not offered by completion."""
    common = {"identity", "kind", "name", "read", "tags"}
    wanted = {
        registry.counter("c"): {"count", "inc"},
        registry.updown("u"): {"dec", "inc", "value"},
        registry.gauge("g"): {"function", "set", "value"},
        registry.meter("m"): {"count", "mark", "rates"},
        registry.histogram("h"): {"count", "sampling", "sketch", "update", "view"},
        registry.timer("t"): {"count", "rates", "sampling", "sketch", "time", "update", "view"},
        registry.position("t", 0): {"cover", "position", "start"},
    }
    for metric, names in wanted.items():
        assert {name for name in dir(metric) if not name.startswith("_")} == common | names


def test_the_version_is_the_distribution_s() -> None:
    """`__version__` is what the package's metadata say."""
    assert tallystream.reporter.__version__ == version("tallystream-reporter")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tallystream.reporter.nothing  # type: ignore[attr-defined]


def test_a_registry_without_a_reporter_says_how_to_get_one(registry: MetricRegistry) -> None:
    """`registry.reporter` is the reporter that `report()` started; before, the error names that function."""
    with pytest.raises(AttributeError, match=r"^the registry 'app' has no reporter; .*report\('app', registry="):
        _ = registry.reporter
    assert not hasattr(registry, "reporter")


class Given:
    """A source that has these metrics."""

    kind = "given"

    def __init__(self, metrics: list[record.Metric]) -> None:
        self._metrics = metrics

    def read(self) -> list[Reading]:
        """Return them."""
        return [Reading(metric) for metric in self._metrics]


def test_a_gauge_that_needs_the_registry_does_not_deadlock(registry: MetricRegistry) -> None:
    """A gauge's function is asked before the lock is taken, so it may wait for a thread that is in together()."""
    entered, asked = threading.Event(), threading.Event()

    def hold() -> None:
        with registry.together():
            entered.set()
            assert asked.wait(10)

    def function() -> float:
        entered.wait(10)
        asked.set()
        return 1.0

    registry.gauge("g", function)
    thread = threading.Thread(target=hold)
    snapshots: list[list[record.Metric]] = []
    taker = threading.Thread(target=lambda: snapshots.append(registry.snapshot()))
    thread.start()
    entered.wait(10)
    taker.start()
    taker.join(10)
    thread.join(10)
    assert snapshots == [[record.Gauge(name="g", value=1.0)]]


@dataclass
class Message:
    """A consumed message, as far as progress needs it."""

    t: str
    p: int
    o: int | None

    def topic(self) -> str:
        """Return the topic."""
        return self.t

    def partition(self) -> int:
        """Return the partition."""
        return self.p

    def offset(self) -> int | None:
        """Return the offset."""
        return self.o


def test_consumer_progress_counts_and_moves_in_one_step(registry: MetricRegistry) -> None:
    """Messages of several partitions are counted, and each partition's position is the next offset."""
    progress = ConsumerProgress(registry, "flights.processed", tags={"group": "g"})
    assert progress.processed([Message("flights", 0, 5), Message("flights", 1, 9), Message("flights", 0, 6)]) == 3
    assert progress.processed(Message("flights", 0, o) for o in (7, 8)) == 2
    assert progress.processed([]) == 0
    name = "flights.processed.position"
    tags = {"group": "g", "topic": "flights"}
    assert registry.snapshot() == [
        record.Counter(name="flights.processed", tags={"group": "g"}, count=5),
        record.Position(name=name, tags={**tags, "partition": "0"}, start=5, position=9),
        record.Position(name=name, tags={**tags, "partition": "1"}, start=9, position=10),
    ]


def test_consumer_progress_takes_records_with_attributes(registry: MetricRegistry) -> None:
    """Records as aiokafka has them are counted as messages of confluent-kafka are."""
    progress = ConsumerProgress(registry, "c")
    records = [ConsumerRecord("t", 3, offset, 0, 0, None, b"", None, 0, 0, ()) for offset in (7, 8)]
    assert progress.processed(records) == 2
    tags = {"topic": "t", "partition": "3"}
    assert find(registry, "c.position", tags=tags) == record.Position(name="c.position", tags=tags, start=7, position=9)


def test_consumer_progress_skips_messages_that_carry_an_error(registry: MetricRegistry) -> None:
    """What `consume()` returns beside records is neither counted nor an offset processed; it raises nothing."""
    progress = ConsumerProgress(registry, "c")
    end = confluent_kafka.Message(topic="t", partition=0, offset=6, error=KafkaError(KafkaError._PARTITION_EOF))
    unknown = confluent_kafka.Message(topic="u", error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    nowhere = confluent_kafka.Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    read = confluent_kafka.Message(topic="t", partition=0, offset=5)
    assert progress.processed([nowhere, read, unknown, end]) == 1
    assert progress.processed([nowhere]) == 0
    name, tags = "c.position", {"topic": "t", "partition": "0"}
    assert registry.snapshot() == [
        record.Counter(name="c", tags={}, count=1),
        record.Position(name=name, tags=tags, start=5, position=6),
    ]


def test_consumer_progress_refuses_a_message_without_offset(registry: MetricRegistry) -> None:
    """A message that no consumer read is refused, and nothing of its batch is counted."""
    progress = ConsumerProgress(registry, "c")
    with pytest.raises(ValueError, match="has the offset None"):
        progress.processed([Message("t", 0, 1), Message("t", 0, None)])
    assert_count(registry, "c", 0)


def test_the_testing_helpers_tell_what_they_found(registry: MetricRegistry) -> None:
    """Assertions pass on what is so, and their message names what is there instead."""
    registry.counter("c", tags={"a": "b"}).inc(3)
    assert_count(registry, "c", 3, tags={"a": "b"})
    assert_not_reported(registry, "c")
    assert find(registry, "c") is None
    registry.counter("c", tags={"a": "x"})
    registry.counter("e").inc()
    with pytest.raises(AssertionError, match=r"^no metric 'd' with the tags {}; there are 'c' and 'e'$"):
        assert_count(registry, "d", 1)
    with pytest.raises(AssertionError, match=r"^no metric 'c' with the tags {}; it has {'a': 'b'} and {'a': 'x'}$"):
        assert_count(registry, "c", 1)
    with pytest.raises(AssertionError, match=r"^no metric 'e' with the tags {'a': 'b'}; it has {}$"):
        assert_count(registry, "e", 1, {"a": "b"})
    with pytest.raises(AssertionError, match=r"^no metric 'c' with the tags {}; there are none$"):
        assert_count(MetricRegistry("empty"), "c", 1)
    with pytest.raises(AssertionError, match="'c' counted 3, not 4"):
        assert_count(registry, "c", 4, tags={"a": "b"})
    with pytest.raises(AssertionError, match="'c' is reported"):
        assert_not_reported(registry, "c", tags={"a": "b"})
    reporter = InMemoryReporter(registry)
    assert reporter.report_now()
    assert reporter.stop()
    assert reporter.reports == [registry.snapshot()] * 2


def test_a_child_is_a_view_with_a_prefix_and_tags(registry: MetricRegistry) -> None:
    """Its metrics are the registry's, under the longer name, with both tags; a child's child has both prefixes."""
    http = registry.child("http", tags={"listener": "public", "zone": "a"})
    requests = http.counter("requests", tags={"zone": "b"})
    assert requests is registry.counter("http.requests", tags={"listener": "public", "zone": "b"})
    inner = http.child("inner", tags={"x": "y"})
    with inner.together():
        inner.timer("t").update(1)
    assert_count(registry, "http.inner.t", 1, tags={"listener": "public", "zone": "a", "x": "y"})
    tagged = registry.child(tags={"only": "tags"})
    assert tagged.gauge("g").identity == ("g", "gauge", (("only", "tags"),))
    progress = ConsumerProgress(http, "seen")
    progress.processed([Message("t", 0, 1)])
    assert {identity[0] for identity in registry.groups()} == {"http.seen", "http.seen.position"}
    with pytest.raises(MetricTypeError, match=r"'http\.requests' is a counter already"):
        http.meter("requests")
    with pytest.raises(ConfigError, match="prefix"):
        registry.child("p" * 513)
    with pytest.raises(ConfigError, match="the name of a metric"):
        http.counter("")
