"""`report()`: create a registry and start its reporter, configured by arguments or TALLYSTREAM_* variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError, DuplicateReporterError
from tallystream.instrumentation.default import default_registry
from tallystream.kafka.reporter import KafkaReporter
from tallystream.registry import MetricRegistry, registry_of
from tallystream.validation import check_name, check_options, is_enabled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.registry import Reportable

PREFIX = "TALLYSTREAM_"
KAFKA_PREFIX = PREFIX + "KAFKA_"
"""The prefix of librdkafka's options: TALLYSTREAM_KAFKA_SASL_PASSWORD is sasl.password."""

MAX_STOPPING_S = 1.0
"""The maximum seconds for the end of an earlier reporter of the registry that was stopped."""


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
    """Start a `KafkaReporter` for a registry, whose app becomes `app`, and return the registry.

    The reporter is `registry.reporter`. Without `registry`, the default registry is reported. If it is reported
    already, or was reported as another app, a new registry is. After `registry.reporter.stop()` the same call reports
    it again; it waits at most a second for the earlier reporter to end.

    Arguments that are not given come from the environment: TALLYSTREAM_BOOTSTRAP_SERVERS (default: localhost:9092),
    TALLYSTREAM_INSTANCE (the host name), TALLYSTREAM_INTERVAL in seconds (1), TALLYSTREAM_TOPIC (`metrics` with the
    prefix TALLYSTREAM_TOPIC_PREFIX), and TALLYSTREAM_KAFKA_* for librdkafka's options, in upper case with _ for each
    point. `options` take precedence over these. With TALLYSTREAM_ENABLED=0 the reporter does nothing: for tests of an
    application. `environment` replaces the environment of the process.

    Raises:
        ConfigError: a value can't be used. The message names the argument or the variable, and never a secret.
        DuplicateReporterError: a reporter that this started before reports the `registry` now.
    """
    if environment is None:  # not a default argument: `help()` would print every variable, including secrets
        environment = os.environ
    app = check_name("app", app)
    reported = _unreported(app) if registry is None else registry_of(registry)
    prefix = environment.get(PREFIX + "TOPIC_PREFIX", "")
    reporter = KafkaReporter(
        reported,
        bootstrap_servers=_first_given(
            bootstrap_servers, environment.get(PREFIX + "BOOTSTRAP_SERVERS"), "localhost:9092"
        ),
        instance=_first_given(instance, environment.get(PREFIX + "INSTANCE"), _host()),
        interval=_interval(environment) if interval is None else interval,
        topic=_first_given(topic, environment.get(PREFIX + "TOPIC"), prefix + "metrics"),
        options={**kafka_options(environment), **check_options(options)},
        enabled=is_enabled(environment),
    )
    if reported.has_reporter:
        if reported.reporter.is_running:
            remedy = "stop its reporter first; use a KafkaReporter to report it to another topic or cluster, too"
            raise DuplicateReporterError("registry", reported.app, remedy)
        reported.reporter.stop(MAX_STOPPING_S)  # a stop() that had too little time goes on in the background
    old_name, reported.app = reported.app, app
    try:
        reported.reporter = reporter.start()
    except ConfigError:
        reported.app = old_name
        raise
    return reported


def kafka_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options of librdkafka that are set by TALLYSTREAM_KAFKA_* variables."""
    return {
        name.removeprefix(KAFKA_PREFIX).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(KAFKA_PREFIX)
    }


def _unreported(app: str) -> MetricRegistry:
    registry = default_registry()
    is_taken = registry.is_reported or (registry.has_reporter and registry.app != app)
    return MetricRegistry(app) if is_taken else registry


def _host() -> str:
    import socket  # imported here because it is slow to import

    return socket.gethostname()


def _first_given(argument: str | None, variable: str | None, default: str) -> str:
    return argument if argument is not None else variable or default


def _interval(environment: Mapping[str, str]) -> float:
    name = PREFIX + "INTERVAL"
    text = environment.get(name) or "1"
    try:
        return float(text)
    except ValueError:
        raise ConfigError(name, text, "set it to a number of seconds, such as 2.5") from None
