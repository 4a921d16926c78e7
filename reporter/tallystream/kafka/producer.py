"""The connection to the brokers: one producer at a time, and its options. Every call has a time limit."""

from __future__ import annotations

import logging
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from tallystream.errors import ConfigError
from tallystream.log_throttle import RateLimitFilter
from tallystream.process.fork import Step, before_fork
from tallystream.validation import check_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import KafkaError, Message, Producer

    from tallystream.clock import Deadline

C = TypeVar("C")

FIXED_OPTIONS: dict[str, str | int | bool] = {
    "acks": "all",
    "enable.idempotence": True,
    # No delivery times out, however long the broker is unavailable: each record is eventually acknowledged or refused.
    "message.timeout.ms": 0,
    "delivery.report.only.error": False,
}
"""The options that the guarantees depend on. They can't be changed."""

DEFAULT_OPTIONS: dict[str, str | int | bool] = {
    "linger.ms": 0,
    "reconnect.backoff.max.ms": 2000,
    "log.connection.close": False,
}
_ALIASES = {"request.required.acks": "acks", "delivery.timeout.ms": "message.timeout.ms"}

librdkafka_log = logging.getLogger("tallystream.librdkafka")
librdkafka_log.addFilter(RateLimitFilter())


def producer_options(bootstrap_servers: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return librdkafka's configuration.

    Raises:
        ConfigError: no broker is given, or an option would break a guarantee or name the brokers a second time.
    """
    if not isinstance(bootstrap_servers, str) or not bootstrap_servers.strip():
        raise ConfigError("bootstrap_servers", bootstrap_servers, "give host:port, or several separated by commas")
    given = check_options(options)
    for name, value in given.items():
        option = _ALIASES.get(name, name)
        if option in FIXED_OPTIONS and str(value).lower() != str(FIXED_OPTIONS[option]).lower():
            needed = str(FIXED_OPTIONS[option]).lower()
            raise ConfigError(name, value, f"leave it out; exact sums need {option}={needed}")
        if name in ("bootstrap.servers", "metadata.broker.list"):
            raise ConfigError(name, value, "use the argument bootstrap_servers")
    extra = {name: value for name, value in given.items() if name not in _ALIASES}
    return {**DEFAULT_OPTIONS, **extra, **FIXED_OPTIONS, "bootstrap.servers": bootstrap_servers}


def make_producer(options: Mapping[str, Any], on_error: Callable[[KafkaError], None]) -> Producer:
    """Return a producer. Raises the errors of `make_client`."""
    import confluent_kafka

    return make_client(confluent_kafka.Producer, {**options, "error_cb": on_error}, sorted(options))


def make_client(kind: Callable[..., C], options: Mapping[str, Any], names: list[str]) -> C:
    """Return a client of confluent-kafka. The messages of librdkafka go to the logger `tallystream.librdkafka`.

    Raises:
        ConfigError: librdkafka refuses an option. The error contains its message, and the names of all options.
    """
    import confluent_kafka

    try:
        return kind(options, logger=librdkafka_log)
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, confluent_kafka.KafkaException) else str(error)
        raise ConfigError("options", names, f"librdkafka reports: {reason.rstrip('.')}") from None


def append_ms(message: Message) -> int:
    """Return the append time of a delivered record, epoch ms (the producer's time if the topic has no append time)."""
    return int(message.timestamp()[1])


MIN_REQUEST_S, MAX_REQUEST_S = 0.05, 2.0
"""The first and the maximum time limit of a metadata request. It is doubled after each timeout."""

_log = logging.getLogger("tallystream")


class Connection:
    """Creates the producer when it is needed, and closes it. It must be used by one thread at a time.

    `broken` means that the producer must be replaced, `all_down` that no broker can be reached. `error` is the reason
    why the last connection failed.

    Args:
        options: the options of librdkafka.
        make: creates the producer, given the options and a callback for errors.
    """

    def __init__(
        self, options: Mapping[str, Any], make: Callable[[Mapping[str, Any], Callable[[KafkaError], None]], Producer]
    ) -> None:
        self.options = options
        self.broken = False
        self.all_down = False
        self.error = ""
        self._make = make
        self._producers: list[Producer] = []  # one or none; `_delete` clears the list, to delete the last reference
        self._healthy = False
        self._request_s = MIN_REQUEST_S

    @property
    def is_open(self) -> bool:
        """Whether there is a producer."""
        return bool(self._producers)

    def open(self) -> None:
        """Create the producer if there is none. Raises ConfigError if librdkafka refuses an option."""
        if not self._producers:
            import ctypes  # noqa: F401 - in a forked child, an import could wait for a thread that only the parent has

            self._producers = [self._make(self.options, self._on_error)]

    def cluster(self, topic: str, timeout: float) -> str | None:
        """Return the cluster's ID, or None if no broker answered within `timeout` seconds or the current time limit.

        If the brokers have no cluster ID, the bootstrap address is returned.
        """
        from confluent_kafka import KafkaError, KafkaException

        if not self._producers:
            return None
        try:
            metadata = self._producers[0].list_topics(topic, timeout=max(min(timeout, self._request_s), 0.0))
        except KafkaException as error:
            if error.args[0].code() == KafkaError._TIMED_OUT:  # noqa: SLF001 - confluent-kafka's public name for it
                self._request_s = min(2 * self._request_s, MAX_REQUEST_S)
            return None
        return metadata.cluster_id or str(self.options["bootstrap.servers"])

    def produce(
        self, topic: str, key: bytes, value: bytes, on_result: Callable[[KafkaError | None, Message], None]
    ) -> None:
        """Send a record. `on_result` is called with the result by a later `poll`. Raises the errors of librdkafka."""

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._healthy = error is None
            if error is None:
                self.all_down, self.error = False, ""
            self.broken = self.broken or (error is not None and error.fatal())
            on_result(error, message)

        self._producers[0].produce(topic, key=key, value=value, on_delivery=on_delivery)

    def poll(self, seconds: float) -> None:
        """Call the callbacks of librdkafka; wait at most `seconds` for an event."""
        if self._producers:
            self._producers[0].poll(seconds)

    def close(self, is_waiting: Callable[[], object], deadline: Deadline) -> None:
        """Close the producer and discard undelivered records; `is_waiting` returns whether results are still missing.

        This is fast, unless a thread of librdkafka is blocked, for example by a name server that does not answer. What
        has not ended by the deadline ends in the background.
        """
        producers, self._producers = self._producers, []
        self._forget()
        if producers and is_waiting():
            producers[0].purge(blocking=False)
            while is_waiting() and (left := deadline.left()):
                producers[0].flush(min(left, 0.05))
        if producers:
            _delete(producers, deadline)

    @property
    def may_be_resolving_names(self) -> bool:
        """Whether the producer may be resolving its broker's name now, so that the process should not fork.

        The C library holds a lock while it resolves a name. A child that is forked at that time inherits the lock
        and can never find a broker. A producer that has just delivered a record is connected, and resolves no names.
        """
        return self.is_open and not self._healthy

    @property
    def is_connected(self) -> bool:
        """Whether the last record was delivered and no connection has failed since."""
        return self.is_open and self._healthy

    def abandon(self) -> None:
        """Drop the producer without closing it: in a forked child, that would wait for threads only the parent has."""
        for producer in self._producers:
            _never_delete(producer)
        self._producers = []
        self._forget()

    def _forget(self) -> None:
        self.broken = self.all_down = self._healthy = False
        self.error = ""

    def _on_error(self, error: KafkaError) -> None:
        self._healthy = False
        if error.code() == error._ALL_BROKERS_DOWN:  # noqa: SLF001 - confluent-kafka's public name for it
            self.all_down = True
        else:
            self.error = error.str()
        self.broken = self.broken or error.fatal()
        _log.log(logging.ERROR if error.fatal() else logging.DEBUG, "librdkafka: %s", error.str())


_closing_threads: WeakSet[Thread] = WeakSet()


def _delete(producers: list[Producer], deadline: Deadline) -> None:
    # Deleting the last reference joins librdkafka's threads.
    thread = Thread(target=producers.clear, name="tallystream-close", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is shutting down and starts no more threads
        for producer in producers:
            _never_delete(producer)
        return
    _closing_threads.add(thread)
    thread.join(deadline.left())


def _wait_for_closing(deadline: Deadline) -> tuple[()]:
    # A producer that is closing may be resolving its broker's name: see `may_be_resolving_names`.
    for thread in list(_closing_threads):
        thread.join(deadline.left())
    return ()


before_fork(Step.DESTINATIONS, _wait_for_closing)


def _never_delete(producer: Producer) -> None:
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(producer))
