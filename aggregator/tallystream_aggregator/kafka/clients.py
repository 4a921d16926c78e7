"""Creates the Kafka clients of all commands, with librdkafka's messages in Python's log.

librdkafka writes a line to standard error for every failed attempt to connect. Here its messages go to Python's log, at
most one of a kind a minute. A client delivers messages when it is polled. A client that is never polled would collect
them in memory, so its messages are off: its calls raise its errors.
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
    """Return a consumer with librdkafka's `options`. `polled` is False for a consumer that is never polled.

    Raises:
        ConfigError: librdkafka rejects an option.
    """
    if polled:
        return _made(lambda: Consumer(dict(options), logger=log), options)
    return _made(lambda: Consumer({**_SILENT, **options}), options)


def producer(options: Mapping[str, Any]) -> Producer:
    """Return a producer with librdkafka's `options`. `flush` and `poll` deliver its messages.

    Raises:
        ConfigError: librdkafka rejects an option.
    """
    return _made(lambda: Producer(dict(options), logger=log), options)


def admin(options: Mapping[str, Any]) -> AdminClient:
    """Return an admin client with librdkafka's `options`. It logs nothing.

    Raises:
        ConfigError: librdkafka rejects an option.
    """
    return _made(lambda: AdminClient({**_SILENT, **options}), options)


def failed(servers: str, error: KafkaException) -> TallystreamError:
    """Return the error of a command whose call to the brokers `servers` failed, with librdkafka's message."""
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
