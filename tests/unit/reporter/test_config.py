"""report(): a registry with a running reporter, configured by arguments and the environment."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest

from tallystream import ConfigError, DuplicateReporterError, KafkaReporter, MetricRegistry, report
from tallystream.config import kafka_options


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


def test_secrets_come_from_the_environment() -> None:
    """TALLYSTREAM_KAFKA_* variables become librdkafka's options, and no message has their values."""
    environment = {"TALLYSTREAM_KAFKA_SASL_PASSWORD": "hush", "TALLYSTREAM_KAFKA_NO_SUCH": "x"}
    assert kafka_options(environment) == {"sasl.password": "hush", "no.such": "x"}
    with pytest.raises(ConfigError, match=r'"no\.such"') as caught:
        report("orders", environment=environment)
    assert "hush" not in str(caught.value)


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
