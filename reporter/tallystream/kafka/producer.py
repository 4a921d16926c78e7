"""The producer: its options, and the few calls that the reporter makes of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError
from tallystream.log_throttle import OncePerKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import KafkaError, Message, Producer

FIXED: dict[str, str | int | bool] = {
    "acks": "all",
    "enable.idempotence": True,
    # A record's fate is always learnt in the end, however long the broker is away: no life ends in doubt by a timeout.
    "message.timeout.ms": 0,
    "delivery.report.only.error": False,
}
"""What the guarantees rest on: these can't be chosen."""

DEFAULTS: dict[str, str | int | bool] = {
    "linger.ms": 0,
    "reconnect.backoff.max.ms": 2000,
    "log.connection.close": False,
}
_OTHER_NAMES = {"request.required.acks": "acks", "delivery.timeout.ms": "message.timeout.ms"}

librdkafka_log = logging.getLogger("tallystream.librdkafka")
librdkafka_log.addFilter(OncePerKind())


def producer_options(bootstrap_servers: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return librdkafka's configuration.

    Raises:
        ConfigError: an option would take a guarantee away, or names the brokers a second time.
    """
    if not isinstance(bootstrap_servers, str) or not bootstrap_servers.strip():
        raise ConfigError("bootstrap_servers", bootstrap_servers, "give host:port, or several with commas between")
    for name, value in (options or {}).items():
        plain = _OTHER_NAMES.get(name, name)
        if plain in FIXED and str(value).lower() != str(FIXED[plain]).lower():
            raise ConfigError(name, value, f"leave it out: exact sums need {plain}={str(FIXED[plain]).lower()}")
        if name in ("bootstrap.servers", "metadata.broker.list"):
            raise ConfigError(name, value, "use the argument bootstrap_servers")
    extra = {name: value for name, value in (options or {}).items() if name not in _OTHER_NAMES}
    return {**DEFAULTS, **extra, **FIXED, "bootstrap.servers": bootstrap_servers}


def make_producer(options: Mapping[str, Any], on_error: Callable[[KafkaError], None]) -> Producer:
    """Return a producer; librdkafka's own messages go to the logger `tallystream.librdkafka`.

    Raises:
        ConfigError: librdkafka refuses an option; its words name it.
    """
    import confluent_kafka

    try:
        return confluent_kafka.Producer({**options, "error_cb": on_error}, logger=librdkafka_log)
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, confluent_kafka.KafkaException) else str(error)
        raise ConfigError("options", sorted(options), f"librdkafka says: {reason.rstrip('.')}") from None


def append_ms(message: Message) -> int:
    """Return the broker's append time of a delivered record, epoch ms (the producer's time on a topic without it)."""
    return int(message.timestamp()[1])
