"""Kafka settings for Spark: librdkafka's names become the Java client's."""

from __future__ import annotations

import pytest

from tallystream.aggregator.spark.kafka import Fetch, java_options, source_options
from tallystream.reporter.errors import ConfigError


def test_bootstrap_servers_and_shared_names_get_the_prefix_of_the_connector() -> None:
    """A name that both clients have is passed on as it is, with the prefix that Spark's connector wants."""
    assert source_options("broker:9092", {"security.protocol": "SSL"}) == {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.security.protocol": "SSL",
    }


def test_a_certificate_authority_becomes_a_pem_truststore() -> None:
    """The file that librdkafka calls ssl.ca.location is a truststore of type PEM to the Java client."""
    assert java_options({"ssl.ca.location": "/etc/ca.pem"}) == {
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.truststore.type": "PEM",
    }


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
def test_user_and_password_become_a_login_of_the_mechanism(mechanism: str, module: str) -> None:
    """Quotes and backslashes in a password arrive as themselves."""
    made = java_options({"sasl.mechanism": mechanism, "sasl.username": "ana", "sasl.password": 'a"b\\c'})
    assert made == {
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{module} required username="ana" password="a\\"b\\\\c";',
    }


def test_a_user_without_a_password_is_refused_without_saying_it() -> None:
    """Half a login is one sentence that names the other half, and not the value."""
    with pytest.raises(ConfigError, match="together") as raised:
        java_options({"sasl.password": "hidden-word"})
    assert "hidden-word" not in str(raised.value)


def test_an_option_that_the_java_client_lacks_is_refused_with_those_it_has() -> None:
    """A librdkafka option without a counterpart is named, with the ones that may be given."""
    with pytest.raises(ConfigError, match=r"queued\.min\.messages.*security\.protocol"):
        java_options({"queued.min.messages": "1"})


def test_patience_is_given_in_spark_s_words() -> None:
    """Tries, the pause between two, and how long a task waits, are the source's options; a fetch hardly waits."""
    assert Fetch(7, 250, 9_000).options() == {
        "kafka.fetch.max.wait.ms": "1",
        "fetchOffset.numRetries": "7",
        "fetchOffset.retryIntervalMs": "250",
        "kafkaConsumer.pollTimeoutMs": "9000",
    }


@pytest.mark.parametrize(
    ("given", "option"),
    [((0, 1000, 1000), "--fetch-tries"), ((1, -1, 1000), "--fetch-pause-ms"), ((1, 0, 0), "--fetch-timeout-ms")],
)
def test_patience_that_can_not_work_names_its_option(given: tuple[int, int, int], option: str) -> None:
    """The sentence begins with the option as it is typed."""
    with pytest.raises(ConfigError, match=f"^{option}: "):
        Fetch(*given)
