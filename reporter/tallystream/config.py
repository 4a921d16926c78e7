"""One call that gives a registry which is already reporting, configured by arguments or TALLYSTREAM_* variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError
from tallystream.kafka.reporter import KafkaReporter
from tallystream.registry import MetricRegistry
from tallystream.reporters.base import registry_of
from tallystream.validation import check_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.reporters.base import Reportable

PREFIX = "TALLYSTREAM_"
KAFKA_PREFIX = PREFIX + "KAFKA_"
"""TALLYSTREAM_KAFKA_SASL_PASSWORD is librdkafka's option sasl.password."""


def report(
    app: str,
    *,
    bootstrap_servers: str | None = None,
    instance: str | None = None,
    interval: float | None = None,
    topic: str | None = None,
    options: Mapping[str, Any] | None = None,
    registry: MetricRegistry | Reportable | None = None,
    environment: Mapping[str, str] | None = None,
) -> MetricRegistry:
    """Return a registry that a started `KafkaReporter` reports, a new one or the given one, which is then named `app`.

    The reporter is `registry.reporter`.

    What is not given comes from the environment: TALLYSTREAM_BOOTSTRAP_SERVERS (else localhost:9092),
    TALLYSTREAM_INSTANCE (else the host's name), TALLYSTREAM_INTERVAL in seconds (else 1), TALLYSTREAM_TOPIC (else
    TALLYSTREAM_TOPIC_PREFIX and `metrics`), and TALLYSTREAM_KAFKA_* for librdkafka's options, each in upper case with _
    for a point; `options` go before these. `environment` replaces the process's own.

    Raises:
        ConfigError: something can't be used; the message names the argument or the variable, and never a secret.
    """
    if environment is None:  # no default argument: `help()` would print every variable, with its secrets
        environment = os.environ
    check_name("app", app)
    reported = MetricRegistry(app) if registry is None else registry_of(registry)
    prefix = environment.get(PREFIX + "TOPIC_PREFIX", "")
    reporter = KafkaReporter(
        reported,
        bootstrap_servers=_pick(bootstrap_servers, environment.get(PREFIX + "BOOTSTRAP_SERVERS"), "localhost:9092"),
        instance=_pick(instance, environment.get(PREFIX + "INSTANCE"), _host()),
        interval=_interval(environment) if interval is None else interval,
        topic=_pick(topic, environment.get(PREFIX + "TOPIC"), prefix + "metrics"),
        options={**kafka_options(environment), **(options or {})},
    )
    named, reported.app = reported.app, app
    try:
        reported.reporter = reporter.start()
    except ConfigError:
        reported.app = named
        raise
    return reported


def kafka_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's options as TALLYSTREAM_KAFKA_* variables have them."""
    return {
        name.removeprefix(KAFKA_PREFIX).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(KAFKA_PREFIX)
    }


def _host() -> str:
    import socket  # here alone, for it takes its time

    return socket.gethostname()


def _pick(argument: str | None, variable: str | None, default: str) -> str:
    return argument if argument is not None else variable or default


def _interval(environment: Mapping[str, str]) -> float:
    name = PREFIX + "INTERVAL"
    text = environment.get(name) or "1"
    try:
        return float(text)
    except ValueError:
        raise ConfigError(name, text, "set it to a number of seconds, such as 2.5") from None
