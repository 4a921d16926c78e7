"""The record of a MetricsRegistry, and its sums in the table."""

from __future__ import annotations

import io
import math
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from support.pyformances import Clock
from support.steps import FIRST, Topic
from tallystream import ConsoleReporter, record, report
from tallystream.pyformance_compat import MetricsRegistry, RegexRegistry, meters
from tallystream.testing import InMemoryReporter, find
from tallystream_aggregator import sums


@pytest.fixture
def registry() -> MetricsRegistry:
    return MetricsRegistry(Clock())


def published(registry: MetricsRegistry) -> dict[tuple[str, str], Any]:
    """Return the metrics that a reporter would publish, by name and type."""
    return {(metric.name, metric.type): metric for metric in registry.tallystream.snapshot()}


def append(topic: Topic, registry: MetricsRegistry, at: int, *, life: str = FIRST, **header: Any) -> Topic:
    """Append a snapshot of the registry, which must be valid, to a table at the second `at`."""
    metrics = msgspec.to_builtins(registry.tallystream.snapshot())
    topic.snapshot(*metrics, at=at * 1000, seq=at + 1, life=life, **header)
    assert topic.reasons() == []
    return topic


def test_every_type_is_published_with_its_values(registry: MetricsRegistry) -> None:
    """Counter, gauge, meter, histogram and timer are valid in the record."""
    registry.counter("c").inc(3)
    registry.gauge("g", lambda: 2.5)
    registry.gauge("unset")
    registry.meter("m").mark(4)
    registry.timer("t").time().stop()
    for value in range(1, 101):
        registry.histogram("h").add(value)
    found = published(registry)
    assert found["c", "counter"] == record.Counter(name="c", count=3)
    assert found["g", "gauge"] == record.Gauge(name="g", value=2.5)
    assert found["m", "meter"] == record.Meter(name="m", count=4)
    assert (found["t", "timer"].count, found["t", "timer"].max) == (1, 0.0)
    histogram = found["h", "histogram"]
    assert (histogram.count, histogram.sum, histogram.min, histogram.max) == (100, 5050, 1, 100)
    assert histogram.p99 == pytest.approx(99, rel=0.01)
    assert len(found) == 5
    append(Topic(), registry, 0)


@pytest.mark.parametrize(
    ("fall", "value"),
    [
        (lambda counter: counter.dec(0), 5),
        (lambda counter: counter.clear(), 0),
        (lambda counter: counter.inc(-2), 3),
        (lambda counter: counter.inc(0.5), 5.5),
        (lambda counter: counter.inc(Decimal("0.25")), 5.25),
    ],
    ids=["dec", "clear", "negative", "fraction", "decimal"],
)
def test_a_counter_is_a_counter_until_it_falls(
    registry: MetricsRegistry, log: pytest.LogCaptureFixture, fall: Any, value: float
) -> None:
    """After dec(), clear(), or a number that a count can't have, it is an updown with the complete value.

    One warning in the log names the counter.
    """
    counter = registry.counter("jobs")
    counter.inc(5)
    assert published(registry) == {("jobs", "counter"): record.Counter(name="jobs", count=5)}
    assert log.text == ""
    for call in (lambda: fall(counter), counter.dec, lambda: counter.inc(8)):
        call()
    assert log.text.count("the counter 'jobs' was decremented or cleared, so it is reported as updown") == 1
    assert published(registry) == {("jobs", "updown"): record.UpDown(name="jobs", value=value + 7)}


def by_type(topic: Topic) -> dict[str, Any]:
    """Return the sums of the last batch by type: a counter's count, an updown's sum."""
    found = [sums.decode(total.value()) for total in topic.changes.totals]
    return {total.type: total.count if total.type == "counter" else total.sum for total in found}


METHODS = {"counter": "inc", "meter": "mark", "histogram": "add"}
CALLS = st.one_of(
    st.tuples(st.just("counter"), st.integers(0, 9)),
    st.tuples(st.just("meter"), st.integers(0, 9)),
    st.tuples(st.just("histogram"), st.integers(-9, 9)),
    st.tuples(st.just("timer"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["dec", "clear counter", "clear meter", "clear histogram", "clear timer"]), st.just(0)),
    st.tuples(st.sampled_from(["clear registry", "report"]), st.just(0)),
)


@example([("counter", 1), ("report", 0), ("clear registry", 0), ("dec", 0), ("clear registry", 0), ("counter", 0)])
@examples(300)
@given(st.lists(CALLS, max_size=60))
def test_no_count_ever_falls(calls: list[tuple[str, int]]) -> None:
    """After any clears, the table rejects nothing, and everything that was published is counted."""
    clock, topic, at = Clock(), Topic(), 0
    registry = MetricsRegistry(clock)
    counts = dict.fromkeys(("meter", "histogram", "timer"), 0)
    for call, number in [*calls, ("report", 0)]:
        if call == "report":
            append(topic, registry, at)
            at += 1
        else:
            make(registry, clock, call, number)
        if call in counts:
            counts[call] += number if call == "meter" else 1
    found = {kind: metric.count for (_, kind), metric in published(registry).items() if kind in counts}
    assert found == {kind: counts[kind] for kind in found}
    assert all(kind in found for kind, count in counts.items() if count)


def make(registry: MetricsRegistry, clock: Clock, call: str, number: int) -> None:
    """Return an object of CALLS."""
    what, _, cleared = call.partition(" ")
    if cleared == "registry":
        registry.clear()
    elif cleared:
        getattr(registry, cleared)("n").clear()
    elif what == "dec":
        registry.counter("n").dec()
    elif what == "timer":
        context = registry.timer("n").time()
        clock.add(number)
        context.stop()
    else:
        getattr(getattr(registry, what)("n"), METHODS[what])(number)


def test_metrics_of_one_name_and_type_are_added_up(registry: MetricsRegistry) -> None:
    """That of the registry behind it, and those whose keys have the same text: keys may have any type."""
    registry.tallystream.counter("404").inc(1)
    for key, count in ((404, 2), (0, 4), ("404", 8)):
        registry.counter(key).inc(count)  # type: ignore[arg-type]
    assert [(one.name, one.count) for one in registry.tallystream.snapshot()] == [("404", 11), ("0", 4)]


def test_a_cleared_counter_that_fell_continues(registry: MetricsRegistry) -> None:
    """The next counter of the name continues from the count before the first one fell."""
    topic = Topic()
    registry.counter("c").inc(5)
    append(topic, registry, 0)
    registry.counter("c").inc(2)
    registry.counter("c").dec()
    append(topic, registry, 1)
    registry.clear()
    registry.counter("c").inc(4)
    assert by_type(append(topic, registry, 2))["counter"] == 11
    registry.counter("d").dec()
    registry.clear()
    registry.counter("d").inc(4)
    assert append(topic, registry, 3).sum("d").count == 4


def test_what_was_counted_before_a_clear_is_published_once() -> None:
    """It is in the next reports, also if no metric of the key is created again."""
    clock, topic = Clock(), Topic()
    registry = MetricsRegistry(clock)
    registry.counter("c").inc(5)
    registry.meter("m").mark(6)
    registry.timer("t").time().stop()
    registry.gauge("g", lambda: 1)
    registry.counter("n" * 513).inc()
    clock.add(2)
    registry.clear()
    assert registry.dump_metrics() == {}
    for at in (0, 1):
        append(topic, registry, at)
        assert [topic.sum(name).count for name in "cmt"] == [5, 6, 1]
        assert len(topic.changes.totals) == 3
    registry.counter("c").inc(2)
    registry.counter("c").dec()
    assert by_type(append(topic, registry, 2)).items() >= {"counter": 7, "updown": 1}.items()


@pytest.mark.parametrize("kind", ["counter", "meter", "histogram", "timer"])
def test_what_an_object_counts_is_reported_once(registry: MetricsRegistry, kind: str) -> None:
    """Also if it is cleared, counts meanwhile and is added again, and if an object with a count is added to its key."""

    def count(metric: Any) -> Any:
        metric.time().stop() if kind == "timer" else getattr(metric, METHODS[kind])(1)
        return metric

    def counted() -> int:
        return int(published(registry)["k", kind].count)

    kept, other = (getattr(meters, kind.capitalize())() for _ in range(2))
    registry.add("k", count(kept))
    registry.clear()
    registry.add("k", kept)
    assert counted() == 1
    registry.clear()
    count(kept)
    count(getattr(registry, kind)("k"))
    assert counted() == 3
    registry.clear()
    registry.add("k", count(other))
    registry.clear()
    count(other)
    registry.add("k", kept)
    assert counted() == 5


@pytest.mark.parametrize(
    ("key", "gauge"),
    [("text", lambda: "up"), ("infinite", lambda: math.inf), ("n" * 513, lambda: 1)],
    ids=["text", "infinite", "long name"],
)
def test_only_an_invalid_metric_is_skipped(
    registry: MetricsRegistry, log: pytest.LogCaptureFixture, key: str, gauge: Any
) -> None:
    """A gauge without a finite number or a name that is too long is logged."""
    registry.gauge(key, gauge)
    registry.counter("c").inc()
    assert list(published(registry)) == [("c", "counter")]
    assert f"{key!r} is skipped" in log.text


def test_keys_that_a_pattern_does_not_match_are_reported_as_unmatched() -> None:
    """The key "" of a RegexRegistry is not a valid name in the record."""
    registry = RegexRegistry(r"^/(\w+)")
    registry.counter("no path").inc()
    registry.counter("/path").inc()
    assert set(published(registry)) == {("(unmatched)", "counter"), ("path", "counter")}


def test_all_reporters_accept_it(registry: MetricsRegistry) -> None:
    """They add their own metrics, which no dump shows; the app is the registry's."""
    registry.tallystream.app = "shop"
    registry.counter("c").inc(2)
    stream = io.StringIO()
    reporter = ConsoleReporter(registry, stream=stream)
    assert reporter.report_now()
    assert stream.getvalue().splitlines()[0].endswith(" shop")
    assert "c counter count=2" in stream.getvalue()
    memory = InMemoryReporter(registry)
    assert memory.report_now()
    assert [metric.name for metric in memory.reports[0] if not metric.name.startswith("tallystream.")] == ["c"]
    assert find(registry.tallystream, "tallystream.reporter.sent", tags={"reporter": "console"})
    assert set(registry.dump_metrics()) == {"c"}


def test_report_accepts_it() -> None:
    """`report("orders", registry=…)` renames it and starts its reporter."""
    mine = MetricsRegistry()
    registry = report("orders", registry=mine, bootstrap_servers="127.0.0.1:1", instance="i", environment={})
    assert registry is mine.tallystream
    assert registry.app == "orders"
    assert registry.reporter is not None
    assert not registry.reporter.stop(timeout=0)
