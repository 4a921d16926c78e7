"""report(): a registry that reports, from arguments and the environment."""

from __future__ import annotations

import socket

import pytest

from tallystream.reporter import ConfigError, KafkaReporter, report
from tallystream.reporter.environment import kafka_options


def started(**arguments: object) -> KafkaReporter:
    """Call report() and return its reporter, stopped."""
    registry = report("orders", **arguments)  # type: ignore[arg-type]
    reporter = registry.reporter
    assert isinstance(reporter, KafkaReporter)
    reporter.stop(timeout=0)
    assert reporter.registry is registry
    return reporter


def test_defaults() -> None:
    """With nothing said: a local broker, the host's name, a second, the topic `metrics`."""
    reporter = started(environment={})
    assert (reporter._servers, reporter.instance) == ("localhost:9092", socket.gethostname())
    assert (reporter.interval, reporter.topic) == (1.0, "metrics")


def test_the_environment_is_read_and_arguments_go_before_it() -> None:
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
    assert reporter._options["client.id"] == "from-environment"
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
    assert reporter._options["client.id"] == "given"


def test_secrets_come_from_the_environment() -> None:
    """TALLYSTREAM_KAFKA_* are librdkafka's names, and their values are in no message."""
    environment = {"TALLYSTREAM_KAFKA_SASL_PASSWORD": "hush", "TALLYSTREAM_KAFKA_NO_SUCH": "x"}
    assert kafka_options(environment) == {"sasl.password": "hush", "no.such": "x"}
    with pytest.raises(ConfigError, match=r'"no\.such"') as caught:
        report("orders", environment=environment)
    assert "hush" not in str(caught.value)


def test_a_bad_variable_is_named() -> None:
    """An interval that is no number is one sentence with the variable's name."""
    with pytest.raises(ConfigError, match="TALLYSTREAM_INTERVAL: 'often' can't be used; set it to a number of seconds"):
        report("orders", environment={"TALLYSTREAM_INTERVAL": "often"})
