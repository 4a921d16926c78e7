"""Creates the Kafka clients of all commands, with librdkafka's messages in Python's log.

librdkafka writes a line to standard error for every failed attempt to connect. Here its messages go to Python's log, at
most one of a kind a minute. A client delivers messages when it is polled. A client that is never polled would collect
them in memory, so its messages are off: its calls raise its errors.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tallystream.errors import ConfigError, TallystreamError
from tallystream.log_throttle import RateLimitFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

log = logging.getLogger("tallystream.librdkafka")
log.addFilter(RateLimitFilter())

TIMEOUT_S = 30.0
"""The time for one request to the brokers."""

READING = "tallystream-reading"
"""The group ID of consumers that join no group and commit nothing. librdkafka requires one."""

_SILENT = {"log_level": 0}
_BROKERS = "bootstrap.servers"

Client = TypeVar("Client")

# confluent-kafka 2.16 never frees the ID in an answer about a topic: 96 bytes for each topic, every few seconds.
# It looks this name up, so that each ID is one object for ever.
confluent_kafka.Uuid = cache(confluent_kafka.Uuid)  # type: ignore[misc,assignment]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers of a command, the prefix of its topics, and librdkafka's options, which may hold a password."""

    bootstrap_servers: str
    topic_prefix: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise ConfigError("--bootstrap-servers", self.bootstrap_servers, "name a broker, as in localhost:9092")

    @property
    def options(self) -> dict[str, str]:
        """The options of librdkafka, with bootstrap.servers."""
        return {**self.kafka, "bootstrap.servers": self.bootstrap_servers}


def consumer(options: Mapping[str, Any]) -> Consumer:
    """Return a consumer with librdkafka's `options`. `poll` delivers its messages.

    Raises:
        ConfigError: librdkafka rejects an option.
    """
    return _create(lambda: Consumer(dict(options), logger=log), options)


@contextmanager
def metadata_consumer(kafka: Mapping[str, Any], group: str = READING) -> Iterator[Consumer]:
    """Yield a consumer that asks for partitions and offsets, and reads no records.

    Raises:
        ConfigError: librdkafka rejects an option.
    """
    options = {**_SILENT, **kafka, "group.id": group, "enable.auto.commit": False}
    opened = _create(lambda: Consumer(options), options)
    try:
        yield opened
    finally:
        opened.close()


def producer(options: Mapping[str, Any]) -> Producer:
    """Return a producer with librdkafka's `options`. `flush` and `poll` deliver its messages.

    Raises:
        ConfigError: librdkafka rejects an option.
    """
    return _create(lambda: Producer(dict(options), logger=log), options)


def admin(options: Mapping[str, Any]) -> AdminClient:
    """Return an admin client with librdkafka's `options`. It logs nothing.

    Raises:
        ConfigError: librdkafka rejects an option.
    """
    return _create(lambda: AdminClient({**_SILENT, **options}), options)


@contextmanager
def broker_errors(servers: str) -> Iterator[None]:
    """Translate a KafkaException of the block to the error of a command that uses the brokers `servers`.

    Raises:
        TallystreamError: the block raised KafkaException. The message is librdkafka's.
    """
    try:
        yield
    except KafkaException as error:
        raise TallystreamError(f"broker {servers}: {_reason(error)}.") from error


def _reason(error: KafkaException) -> str:
    return str(error.args[0].str())


def _create(new: Callable[[], Client], options: Mapping[str, Any]) -> Client:
    try:
        return new()
    except KafkaException as error:
        names = sorted(name for name in options if name != _BROKERS)  # the values may be secrets
        remedy = f"correct the option that librdkafka names: {_reason(error).rstrip('.')}"
        raise ConfigError("--kafka", names, remedy) from error
