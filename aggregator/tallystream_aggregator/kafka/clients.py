"""The Kafka clients of all commands: one place for what librdkafka may print, and for options that it refuses.

librdkafka writes a line to standard error for every failed attempt to connect. Here its messages go to Python's log, at
most one of a kind a minute. A client delivers them when it is polled; one that nobody polls would keep them in memory,
so it is told to have none: its errors are those that its calls raise.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tallystream.errors import ConfigError, TallystreamError
from tallystream.log_throttle import RateLimitFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger("tallystream.librdkafka")
log.addFilter(RateLimitFilter())

_SILENT = {"log_level": 0}
_BROKERS = "bootstrap.servers"

Client = TypeVar("Client")


def consumer(options: Mapping[str, Any], *, polled: bool = True) -> Consumer:
    """Return a consumer with librdkafka's `options`; `polled` is False where only its other calls are used.

    Raises:
        ConfigError: librdkafka refuses an option.
    """
    if polled:
        return _made(lambda: Consumer(dict(options), logger=log), options)
    return _made(lambda: Consumer({**_SILENT, **options}), options)


def producer(options: Mapping[str, Any]) -> Producer:
    """Return a producer with librdkafka's `options`; `flush` and `poll` deliver its messages.

    Raises:
        ConfigError: librdkafka refuses an option.
    """
    return _made(lambda: Producer(dict(options), logger=log), options)


def admin(options: Mapping[str, Any]) -> AdminClient:
    """Return an admin client with librdkafka's `options`; it prints nothing.

    Raises:
        ConfigError: librdkafka refuses an option.
    """
    return _made(lambda: AdminClient({**_SILENT, **options}), options)


def failed(servers: str, error: KafkaException) -> TallystreamError:
    """Return the error of a command whose call to the brokers `servers` failed, in librdkafka's words."""
    return TallystreamError(f"broker {servers}: {_reason(error)}.")


def _reason(error: KafkaException) -> str:
    return str(error.args[0].str())


def _made(make: Callable[[], Client], options: Mapping[str, Any]) -> Client:
    try:
        return make()
    except KafkaException as error:
        names = sorted(name for name in options if name != _BROKERS)  # the values may be secrets
        remedy = f"correct the option that librdkafka names: {_reason(error).rstrip('.')}"
        raise ConfigError("--kafka", names, remedy) from error
