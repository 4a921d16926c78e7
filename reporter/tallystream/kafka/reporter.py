"""The reporter that publishes snapshots of a registry to a Kafka topic."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tallystream.clock import Deadline
from tallystream.kafka import destinations
from tallystream.kafka.life import LifeHistory
from tallystream.kafka.producer import MAX_REQUEST_S, Connection, append_ms, make_producer, producer_options
from tallystream.registry import registry_of
from tallystream.reporters.scheduled import ScheduledReporter
from tallystream.validation import check_instance, check_interval, check_topic, is_enabled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import KafkaError, Message, Producer

    from tallystream.kafka.life import PendingRecord
    from tallystream.registry import MetricRegistry, Reportable


ACKNOWLEDGEMENT_TIMEOUT_S = 10.0
"""Seconds without an acknowledgement after which a warning is logged (three intervals, if that is longer)."""

MAX_UNREACHABLE_S = 1.0
"""The maximum seconds for the last report if no broker could be reached since the start."""

NO_ANSWER = "the broker does not answer"

MAX_REPLACING_S = 1.0
"""The maximum seconds for closing a producer that another one replaces."""

_log = logging.getLogger("tallystream")


class KafkaReporter(ScheduledReporter):
    """Publishes a registry to Kafka: every `interval` seconds, at `report_now()`, and when it stops.

    Delivery: acknowledged values are counted exactly once, even if processes are killed or restarted, or records are
    sent again. Each snapshot replaces the previous one, so at most one record of each part is in flight, and the next
    one has the newest values. While the broker is down, updates of metrics neither block nor fail, and nothing is
    buffered: a warning is logged, and `connected` is False. Increments that a killed process had not published are
    lost: at most those of one interval while the broker is available. To prevent that, call `report_now()` before each
    commit.

    Args:
        registry: the registry to report. Several reporters of one registry must have different topics or clusters.
        bootstrap_servers: host:port, several separated by commas.
        instance: the instance ID, which is the key of the records: stable over restarts, up to 1024 bytes.
        interval: seconds between two reports, from 0.01 to 3600.
        include, exclude: shell patterns of metric names. Metrics that match an `include` and no `exclude` are reported.
        topic: the topic to publish to.
        options: any options of librdkafka (TLS, SASL, client.id …) except those that the guarantees depend on.
        own_metrics: whether the registry has metrics of this reporter, as `tallystream.reporter.*`.
        enabled: whether it reports. If not, `start()` starts nothing, and `report_now()` and `stop()` return True. None
            stands for the environment variable TALLYSTREAM_ENABLED, which is 0 in tests of an application.

    Raises:
        ConfigError: an argument can't be used. `start()` and `report_now()` raise it if librdkafka refuses an option.
        DuplicateReporterError: raised by `report_now()` if another reporter reports the registry to the same topic of
            the same cluster. A reporter that was started logs this error, and stops before it sends anything.
    """

    kind: ClassVar[str] = "kafka"

    def __init__(
        self,
        registry: MetricRegistry | Reportable,
        *,
        bootstrap_servers: str,
        instance: str,
        interval: float = 1.0,
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
        topic: str = "metrics",
        options: Mapping[str, Any] | None = None,
        own_metrics: bool = True,
        enabled: bool | None = None,
        producer: Callable[[Mapping[str, Any], Callable[[KafkaError], None]], Producer] = make_producer,
    ) -> None:
        registry = registry_of(registry)
        self._connection = Connection(producer_options(bootstrap_servers, options), producer)
        self.instance = check_instance(instance)
        self.topic = check_topic(topic)
        self.enabled = is_enabled(os.environ) if enabled is None else enabled
        self.sent = 0
        self._servers = bootstrap_servers
        self._destination: destinations.Destination | None = None  # once the cluster's ID is known
        self._lives = LifeHistory(registry.app)
        self._report_due = False  # whether a report is due; it is sent when no record is in flight
        self._closing = False
        self._max_silence_s = max(ACKNOWLEDGEMENT_TIMEOUT_S, 3 * check_interval(interval))
        self._silence: Deadline | None = None  # since the first report that was not followed by an acknowledgement
        self._is_silent = False  # whether that deadline has passed
        super().__init__(registry, interval=interval, include=include, exclude=exclude, own_metrics=own_metrics)

    def __repr__(self) -> str:
        return f"<KafkaReporter of {self.registry.app!r} as {self.instance!r} to {self.topic!r}>"

    def start(self) -> Self:
        """Start reporting, and return the reporter. Does nothing if it is running, or not enabled.

        Raises:
            ConfigError: an option can't be used.
        """
        return super().start() if self.enabled else self

    def report_now(self, timeout: float = 10.0) -> bool:
        """Report the current values and wait for delivery, at most `timeout` seconds; return whether they arrived.

        Raises:
            ConfigError: an option can't be used.
        """
        return not self.enabled or super().report_now(timeout)

    @property
    def connected(self) -> bool:
        """Whether, as of the last report, the last record was delivered and no connection has failed since."""
        return self._connection.is_connected and not self._is_silent

    def _open(self) -> None:
        self._connection.open()

    def _identify(self, timeout: float) -> bool:
        """Return whether the cluster's ID is known; request it for at most `timeout` seconds if not.

        Nothing is sent before it is known: another reporter may report the registry there, by another address.
        """
        if self._destination is None:
            cluster = self._connection.cluster(self.topic, timeout)
            if cluster is not None:
                self._destination = destinations.claim(self, self.registry, cluster, self.topic, self.instance)
                self._lives = self._destination.lives
                self._lives.every_ms = round(self.interval * 1000)
        return self._destination is not None

    def _expect_acknowledgement(self) -> None:
        self._silence = self._silence or Deadline(self._max_silence_s, self._monotonic)

    def _end_silence(self) -> None:
        self._silence, self._is_silent = None, False

    def _report(self) -> bool:
        self._expect_acknowledgement()
        self._poll(0)
        self._report_due = True
        return self._send_if_free()

    def _continue_report(self) -> bool:
        self._poll(0)
        return self._send_if_free()

    def _send_if_free(self) -> bool:
        if self._report_due and self._identify(MAX_REQUEST_S) and not self._lives.in_flight:
            self._send(final=False)
        return self._report_due or bool(self._lives.in_flight)

    def _report_and_wait(self, timeout: float, *, final: bool) -> bool:
        deadline, unreachable = (
            Deadline(seconds, self._monotonic) for seconds in (timeout, min(timeout, MAX_UNREACHABLE_S))
        )

        def left() -> float:
            return (unreachable if final and self._was_never_reached else deadline).left()

        self._expect_acknowledgement()
        while not self._identify(left()) and left():
            self._poll(min(left(), 0.05))
        while self._destination is not None:
            self._wait_until_free(left)
            records = self._send(final=final)
            self._wait_until_free(left)
            if records and not self._lives.incomplete and all(self._lives.has(record) for record in records):
                return True
            # If a life ended early, a new one follows immediately. Any other failure returns False.
            if not records or self._lives.in_flight or not self._lives.new_life_due:
                break
        if final and self._was_never_reached:
            text = "this process reported no metrics: none have arrived at %s: %s"
            _log.warning(text, self._servers, self._connection.error or NO_ANSWER)
        return False

    @property
    def _was_never_reached(self) -> bool:
        return not (self.sent or self._destination) and (self._connection.all_down or self._is_silent)

    def _wait_until_free(self, left: Callable[[], float]) -> None:
        while self._lives.in_flight and (seconds := left()):
            self._poll(min(seconds, 0.1))

    def _poll(self, seconds: float) -> None:
        self._connection.poll(seconds)
        if self._silence is not None and not self._is_silent and not self._silence.left():
            self._is_silent = True
            what = f"no metrics have arrived at {self._servers} for {self._max_silence_s:g} s"
            self._fail(what, self._connection.error or NO_ANSWER, logging.WARNING)

    def _send(self, *, final: bool) -> list[PendingRecord]:
        """Send the current values and return the records, or none while others are in flight."""
        if self._lives.in_flight:
            return []
        self._report_due = False
        if self._connection.broken:
            self._disconnect(Deadline(MAX_REPLACING_S, self._monotonic))
        self._open()  # a fork may have closed the connection since the report became due
        registry, begin = self.registry, self._monotonic()
        metrics = self._filter.apply(registry.snapshot(views=False))
        self._lives.app = registry.app
        ready = self._lives.prepare(metrics, registry.clock.wall_ms(), final=final, groups=registry.groups())
        for error in self._lives.errors:
            self._fail("metrics are not reported", error)
        self._lives.errors.clear()
        for pending in ready:
            self._produce(pending)
        if self._own:
            self._own.duration.update(self._monotonic() - begin)
        return ready

    def _produce(self, pending: PendingRecord) -> None:
        key, value = self.instance.encode(), pending.value
        try:
            self._connection.produce(self.topic, key, value, lambda *result: self._on_delivery(pending, *result))
        except Exception as error:  # noqa: BLE001 - the record was not sent, and the next report has newer values
            _log.debug("the failure in full", exc_info=True)
            self._lives.failed(pending, never_sent=True)
            self._fail(f"a snapshot for {self.topic!r} can't be sent", error)

    def _on_delivery(self, pending: PendingRecord, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.sent += 1
            if self._is_silent:
                _log.info("metrics arrive at %s again", self._servers)
            self._end_silence()
            if self._own:
                self._own.sent.inc()
                self._own.bytes.inc(len(pending.value))
            self._lives.acknowledged(pending, append_ms(message), self.registry.clock.wall_ms())
            self._report_due = self._report_due or self._lives.new_life_due
            if self._lives.refused:
                self._fail(
                    "a life has ended",
                    "its record was appended a day late, or this clock is a day ahead; a new life continues the counts",
                )
            return
        self._lives.failed(pending)
        if not self._closing:
            self._fail(f"a snapshot for {self.topic!r} was not delivered", error.str())

    def _close(self, deadline: Deadline) -> None:
        self._disconnect(deadline)
        self._end_silence()
        if self._destination is not None:
            self._destination.release()
            self._destination = None

    def _disconnect(self, deadline: Deadline) -> None:
        self._closing = True
        try:
            self._connection.close(lambda: self._lives.in_flight, deadline)
        finally:
            self._closing = False
        # Records that are still in flight may or may not arrive. The next record of their life replaces them.
        for pending in self._lives.in_flight:
            self._lives.failed(pending)

    def _prepare_fork(self, deadline: Deadline) -> None:
        if self._connection.may_be_resolving_names:
            self._disconnect(deadline)

    def _abandon(self) -> None:
        self._connection.abandon()
        self._destination = None
        self._lives = LifeHistory(self.registry.app)
        self.sent = 0
        self._report_due = False
        self._end_silence()
