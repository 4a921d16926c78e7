"""Kafka settings for both clients: users write librdkafka's names, Spark's connector wants the Java client's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream.reporter.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAME = {
    "security.protocol",
    "client.id",
    "client.rack",
    "request.timeout.ms",
    "retry.backoff.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "metadata.max.age.ms",
    "socket.connection.setup.timeout.ms",
    "fetch.min.bytes",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "fetch.max.wait.ms",
    "compression.type",
    "linger.ms",
    "batch.size",
}
_RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.key.password": "ssl.key.password",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "ssl.keystore.password": "ssl.keystore.password",
}
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, slots=True)
class Fetch:
    """How patiently Spark's source asks the broker.

    `tries` is how often it asks where the topics end, `pause_ms` how long it waits in between: after that the query
    fails. `timeout_ms` is how long a task waits for records that must be there: after that the task fails.

    Raises:
        ConfigError: one of them can't be used.
    """

    tries: int = 5
    pause_ms: int = 1000
    timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ConfigError("--fetch-tries", self.tries, "give a whole number above zero")
        if self.pause_ms < 0:
            raise ConfigError("--fetch-pause-ms", self.pause_ms, "give milliseconds, 0 for no pause")
        if self.timeout_ms < 1:
            raise ConfigError("--fetch-timeout-ms", self.timeout_ms, "give milliseconds above zero")

    def options(self) -> dict[str, str]:
        """Return them as Spark's Kafka source has them; options for Kafka itself, given after them, win."""
        return {
            # A task that has its records asks where the partition ends, on the connection on which the consumer has
            # asked for more records by then. A broker answers in order, and the second only when there are any: with
            # Kafka's own 500 ms a batch of a quiet topic takes that long more.
            "kafka.fetch.max.wait.ms": "1",
            "fetchOffset.numRetries": str(self.tries),
            "fetchOffset.retryIntervalMs": str(self.pause_ms),
            "kafkaConsumer.pollTimeoutMs": str(self.timeout_ms),
        }


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's `options` as the Java client's, with the prefix `kafka.` that Spark's connector wants.

    Raises:
        ConfigError: an option has no counterpart known here.
    """
    java: dict[str, str] = {}
    for name, value in options.items():
        if name in ("sasl.username", "sasl.password"):
            continue
        if name not in _SAME and name not in _RENAMED:
            known = ", ".join(sorted({*_SAME, *_RENAMED, "sasl.username", "sasl.password"}))
            raise ConfigError("--kafka", name, f"use one of these, which both Kafka clients have: {known}")
        java[f"kafka.{_RENAMED.get(name, name)}"] = value
    if "ssl.ca.location" in options:
        java["kafka.ssl.truststore.type"] = "PEM"
    return java | _login(options)


def source_options(bootstrap_servers: str, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the options with which Spark's Kafka source, and its sink, reach the broker."""
    return {"kafka.bootstrap.servers": bootstrap_servers, **java_options(options or {})}


def _login(options: Mapping[str, str]) -> dict[str, str]:
    if ("sasl.username" in options) != ("sasl.password" in options):
        given = "sasl.username" if "sasl.username" in options else "sasl.password"
        raise ConfigError("--kafka", given, "give sasl.username and sasl.password together")
    if "sasl.username" not in options:
        return {}
    mechanism = options.get("sasl.mechanisms", options.get("sasl.mechanism", ""))
    module = _PLAIN if mechanism == "PLAIN" else _SCRAM
    user, password = (_quoted(options[name]) for name in ("sasl.username", "sasl.password"))
    return {"kafka.sasl.jaas.config": f"{module} required username={user} password={password};"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
