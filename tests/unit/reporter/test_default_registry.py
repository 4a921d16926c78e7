"""The default registry, decorators, labels, the counter of log records, and the switch that turns reporting off."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

import tallystream
from support.scripted_producer import KafkaBench
from tallystream import (
    ConfigError,
    Counter,
    KafkaReporter,
    LogRecordCounter,
    MetricRegistry,
    count_exceptions,
    default_registry,
    record,
    report,
)
from tallystream.instrumentation import decorators
from tallystream.log_throttle import RateLimitFilter
from tallystream.testing import assert_count, assert_not_reported

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def registry() -> MetricRegistry:
    """Return a new registry."""
    return MetricRegistry("orders")


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricRegistry]:
    """Replace the default registry by a new one for the test."""
    new = MetricRegistry("default")
    monkeypatch.setattr("tallystream.instrumentation.default._registry", new)
    yield new
    if new.has_reporter:
        new.reporter.stop(timeout=0)


def test_functions_create_metrics_of_the_default_registry() -> None:
    """Each function is the method of the default registry."""
    for kind in ("counter", "updown", "gauge", "meter", "histogram", "timer"):
        assert getattr(tallystream, kind) == getattr(default_registry(), kind)


def test_report_reports_the_default_registry_and_then_new_ones(default: MetricRegistry) -> None:
    """The first call without a registry names the default registry; a second app gets a registry of its own."""
    first = report("orders", bootstrap_servers="127.0.0.1:1", environment={})
    second = report("billing", bootstrap_servers="127.0.0.1:1", environment={})
    try:
        assert (first, first.app) == (default, "orders")
        assert (second is default, second.app) == (False, "billing")
    finally:
        second.reporter.stop(timeout=0)


def test_a_report_after_a_stop_continues_the_default_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics of modules are reported again, and only what was counted since. Another app gets another registry."""
    bench = KafkaBench()
    monkeypatch.setattr("tallystream.instrumentation.default._registry", bench.registry)
    monkeypatch.setitem(KafkaReporter.__init__.__kwdefaults__, "producer", bench._producer)
    for amount in (5, 2):
        bench.counter.inc(amount)
        registry = report("orders", bootstrap_servers="b:9092", instance="i", interval=3600, environment={})
        assert registry is bench.registry
        assert registry.reporter.report_now()
        bench.counter.inc()
        assert registry.reporter.stop()
    published = [m.count for s in bench.snapshots for m in s.metrics if m.name == "c" and isinstance(m, record.Counter)]
    assert (published, len({s.life for s in bench.snapshots})) == ([5, 6, 2, 3], 2)
    assert {s.app for s in bench.snapshots} == {"orders"}
    other = report("billing", bootstrap_servers="b:9092", instance="i", interval=3600, environment={})
    assert (other is registry, registry.app, other.reporter.stop()) == (False, "orders", True)


def test_a_report_waits_for_a_reporter_that_is_stopping(default: MetricRegistry) -> None:
    """`stop(timeout=0)` closes the connection in the background, and the earlier reporter would be a second one."""
    for _ in range(3):
        assert report("orders", bootstrap_servers="127.0.0.1:1", interval=3600, environment={}) is default
        default.reporter.stop(timeout=0)


def test_exceptions_are_counted_by_class(registry: MetricRegistry) -> None:
    """Exceptions of a function, a coroutine function and a block count, and continue; other exceptions do not count."""
    failures = count_exceptions("failed", (ValueError, KeyError), tags={"a": "1"}, registry=registry)

    @failures
    def fail(error: Exception) -> None:
        raise error

    @failures
    async def fail_later(error: Exception) -> None:
        raise error

    for error in (ValueError("x"), KeyError("x"), OSError("x")):
        with pytest.raises(type(error)):
            fail(error)
        with pytest.raises(type(error)):
            asyncio.run(fail_later(error))
    with pytest.raises(ValueError, match="x"), failures:
        raise ValueError("x")
    with failures:
        pass
    assert_count(registry, "failed", 3, tags={"a": "1", "exception": "ValueError"})
    assert_count(registry, "failed", 2, tags={"a": "1", "exception": "KeyError"})
    assert_not_reported(registry, "failed", tags={"a": "1", "exception": "OSError"})


def test_an_exception_that_cannot_be_counted_continues(
    registry: MetricRegistry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the counter can't exist, the application gets its own exception, and the reason is logged once a minute."""
    monkeypatch.setattr(decorators._log, "filters", [RateLimitFilter()])
    registry.timer("failed")
    for _ in range(2):
        with pytest.raises(ValueError, match="of the application"), count_exceptions("failed", registry=registry):
            raise ValueError("of the application")
    assert [record.message for record in caplog.records] == ["an exception can't be counted as 'failed'"]
    assert "the name 'failed' is a timer already" in caplog.text


def test_labels_are_tags_of_a_metric_of_the_same_name(registry: MetricRegistry) -> None:
    """A metric with labels is the registry's metric with these tags, also of a child registry."""
    records = registry.child("in", tags={"a": "1"}).counter("records")
    assert records.labels(topic="x") is registry.counter("in.records", {"a": "1", "topic": "x"})
    assert records.labels(a="2") is registry.counter("in.records", {"a": "2"})
    assert records.labels(a="2").labels(b="3").tags == {"a": "2", "b": "3"}
    with pytest.raises(ConfigError, match="topic"):
        records.labels(topic="x" * 513)
    with pytest.raises(ConfigError, match="with a registry"):
        Counter("c", {}).labels(a="1")


def test_log_records_are_counted_by_level(registry: MetricRegistry) -> None:
    """Each record counts once, with its level as a tag; records below the handler's level do not."""
    log, handler = logging.getLogger("test_default_registry"), LogRecordCounter(registry, level="INFO")
    log.addHandler(handler)
    try:
        log.debug("x")
        log.warning("x")
        log.error("x")
        log.error("y")
    finally:
        log.removeHandler(handler)
    assert_count(registry, "log.records", 1, tags={"level": "warning"})
    assert_count(registry, "log.records", 2, tags={"level": "error"})
    assert_not_reported(registry, "log.records", tags={"level": "debug"})


def test_a_log_record_that_cannot_be_counted_is_logged(
    registry: MetricRegistry, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """The code that logs gets no exception; Python's logging prints the reason."""
    registry.timer("log.records")
    log, handler = logging.getLogger("test_default_registry"), LogRecordCounter(registry)
    log.addHandler(handler)
    try:
        log.error("x")
    finally:
        log.removeHandler(handler)
    assert [record.message for record in caplog.records] == ["x"]
    assert "the name 'log.records' is a timer already" in capsys.readouterr().err


@pytest.mark.parametrize("off", ["0", "false", "FALSE"])
def test_a_switch_turns_reporting_off(off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With TALLYSTREAM_ENABLED=0 nothing is started or sent, and code that waits for delivery goes on."""
    monkeypatch.setenv("TALLYSTREAM_ENABLED", off)

    def producer(*_: object) -> None:
        pytest.fail("a producer was made")

    reporter = KafkaReporter(
        MetricRegistry("orders"),
        bootstrap_servers="127.0.0.1:1",
        instance="i",
        producer=producer,  # type: ignore[arg-type]
    ).start()
    assert (reporter.report_now(), reporter.stop(), reporter.connected) == (True, True, False)
    reported = report("orders", registry=MetricRegistry("x"), environment={"TALLYSTREAM_ENABLED": off})
    assert reported.reporter.report_now(timeout=0)


def test_another_value_of_the_switch_is_an_error() -> None:
    """The message names the variable and what to set."""
    with pytest.raises(ConfigError, match=r"TALLYSTREAM_ENABLED: 'off' can't be used; set it to 0"):
        report("orders", registry=MetricRegistry("x"), environment={"TALLYSTREAM_ENABLED": "off"})
