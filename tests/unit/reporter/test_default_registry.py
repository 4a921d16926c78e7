"""report(): its settings, and the default registry with its decorators."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import tallystream
from support.scripted_producer import KafkaBench
from tallystream import (
    ConfigError,
    Counter,
    DuplicateReporterError,
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
from tallystream.testing import assert_count, find


def started(**arguments: object) -> KafkaReporter:
    """Call report(), stop its reporter and return it."""
    registry = report("orders", **arguments)  # type: ignore[arg-type]
    reporter = registry.reporter
    assert isinstance(reporter, KafkaReporter)
    reporter.stop(timeout=0)
    assert reporter.registry is registry
    return reporter


def test_defaults() -> None:
    """Without settings: a local broker, the host name, one second, and the topic `metrics`."""
    reporter = started(environment={})
    assert (reporter._servers, reporter.instance) == ("localhost:9092", socket.gethostname())
    assert (reporter.interval, reporter.topic) == (1.0, "metrics")


def test_arguments_take_precedence_over_the_environment() -> None:
    """Every variable has its effect, and each argument replaces its variable."""
    environment = {
        "TALLYSTREAM_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "TALLYSTREAM_INSTANCE": "i-7",
        "TALLYSTREAM_INTERVAL": "2.5",
        "TALLYSTREAM_TOPIC_PREFIX": "test-",
        "TALLYSTREAM_KAFKA_CLIENT_ID": "from-environment",
        "OTHER": "x",
    }
    reporter = started(environment=environment)
    assert (reporter._servers, reporter.instance) == ("127.0.0.1:1", "i-7")
    assert (reporter.interval, reporter.topic) == (2.5, "test-metrics")
    assert reporter._connection.options["client.id"] == "from-environment"
    assert started(environment={**environment, "TALLYSTREAM_TOPIC": "t"}).topic == "t"
    reporter = started(
        environment=environment,
        bootstrap_servers="127.0.0.1:2",
        instance="j",
        interval=3,
        topic="u",
        options={"client.id": "given"},
    )
    assert (reporter._servers, reporter.instance, reporter.interval, reporter.topic) == ("127.0.0.1:2", "j", 3, "u")
    assert reporter._connection.options["client.id"] == "given"


def test_an_invalid_variable_is_named() -> None:
    """The error about an interval that is not a number names the variable."""
    with pytest.raises(ConfigError, match="TALLYSTREAM_INTERVAL: 'often' can't be used; set it to a number of seconds"):
        report("orders", environment={"TALLYSTREAM_INTERVAL": "often"})


def test_a_rejected_call_does_not_rename_the_registry() -> None:
    """After any ConfigError, from the constructor or from start(), the registry has its old name."""
    registry = MetricRegistry("before")
    for arguments in ({"instance": "\0"}, {"options": {"no.such": "x"}}):
        with pytest.raises(ConfigError):
            report("after", registry=registry, environment={}, **arguments)  # type: ignore[arg-type]
        assert registry.app == "before"
        assert not hasattr(registry, "reporter")


def test_a_registry_that_is_reported_keeps_its_app_and_its_reporter() -> None:
    """A second call for it is an error, whatever its app and topic are. After a stop the same call works."""
    registry = report("orders", registry=MetricRegistry("orders"), environment={})
    reporter = registry.reporter
    try:
        for app, topic in (("orders", "metrics"), ("billing", "other")):
            with pytest.raises(DuplicateReporterError, match="stop its reporter first"):
                report(app, registry=registry, topic=topic, environment={})
            assert (registry.app, registry.reporter) == ("orders", reporter)
    finally:
        reporter.stop(timeout=0)
    report("orders", registry=registry, environment={"TALLYSTREAM_ENABLED": "0"})
    report("orders", registry=registry, environment={"TALLYSTREAM_ENABLED": "0"})


SECRET = "hush-hush-4711"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
TOKENS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}


@pytest.mark.parametrize("by_environment", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {**SASL, "sasl.password": SECRET, "debug": "all", "log_level": "7"},
        {**SASL, "sasl.password": "\udc00" + SECRET},
        {**SASL, "sasl.password": SECRET, "no.such.option": "x"},
        {**SASL, "sasl.pasword": SECRET},
        {**TOKENS, "sasl.oauthbearer.client.id": "x", "sasl.oauthbearer.client.secret": SECRET},
        {"security.protocol": "SSL", "ssl.key.pem": SECRET, "ssl.key.password": SECRET},
        {"security.protocol": "SSL", "ssl.key.location": "/nowhere", "ssl.key.password": SECRET},
    ],
)
def test_a_secret_is_in_no_log_no_repr_and_no_error(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture, *, by_environment: bool
) -> None:
    """No secret is shown, whether librdkafka accepts or rejects the options, also with debug logging."""
    variables = {"TALLYSTREAM_KAFKA_" + name.upper().replace(".", "_"): value for name, value in options.items()}
    if "log_level" in options and by_environment:
        variables.pop("TALLYSTREAM_KAFKA_LOG_LEVEL")  # the only option with an underscore in its name
    given: dict[str, Any] = {"environment": variables} if by_environment else {"environment": {}, "options": options}
    with caplog.at_level(logging.DEBUG):
        try:
            registry = report("orders", bootstrap_servers="127.0.0.1:1", instance="i", interval=0.01, **given)
        except ConfigError as error:
            texts = [str(error), repr(error), repr(error.__context__)]
        else:
            reporter = registry.reporter
            assert isinstance(reporter, KafkaReporter)
            assert not reporter.report_now(timeout=0.3)
            texts = [repr(reporter), repr(registry), str(reporter.last_error)]
            reporter.stop(timeout=0)
            assert "librdkafka" in caplog.text
    assert SECRET not in "\n".join([*texts, caplog.text, *(str(record.args) for record in caplog.records)])


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
    """Those of the given classes, of a block as of a function, count and continue; other exceptions do not count."""
    failures = count_exceptions("failed", (ValueError, KeyError), tags={"a": "1"}, registry=registry)
    for error in (ValueError, KeyError, ValueError, OSError):
        with pytest.raises(error), failures:
            raise error
    with failures:
        pass
    assert_count(registry, "failed", 2, tags={"a": "1", "exception": "ValueError"})
    assert_count(registry, "failed", 1, tags={"a": "1", "exception": "KeyError"})
    assert find(registry, "failed", tags={"a": "1", "exception": "OSError"}) is None


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
    assert find(registry, "log.records", tags={"level": "debug"}) is None


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
