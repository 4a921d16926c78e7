"""The reporter to Kafka: snapshots to the topic `metrics`, each life's values absolute, nothing counted twice."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from tallystream.clock import Deadline
from tallystream.kafka import destinations
from tallystream.kafka.life import LifeHistory
from tallystream.kafka.producer import LONGEST_REQUEST, Connection, append_ms, make_producer, producer_options
from tallystream.reporters.base import registry_of
from tallystream.reporters.filters import MetricFilter
from tallystream.reporters.scheduled import ScheduledReporter
from tallystream.validation import check_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import KafkaError, Message, Producer

    from tallystream.kafka.life import PendingRecord
    from tallystream.registry import MetricRegistry
    from tallystream.reporters.base import Reportable


class AcknowledgementTimeout:
    """The time since the first report that no acknowledgement has followed.

    Args:
        limit: after how many seconds it is `long`.
        monotonic: the clock.
    """

    def __init__(self, limit: float, monotonic: Callable[[], float]) -> None:
        self.limit, self._monotonic = limit, monotonic
        self.long = False
        self._since: float | None = None

    def begin(self) -> None:
        """Note that a report is due; what began earlier stands."""
        if self._since is None:
            self._since = self._monotonic()

    def becomes_long(self) -> bool:
        """Tell, once for each silence, that it has reached the limit."""
        if self.long or self._since is None or self._monotonic() - self._since < self.limit:
            return False
        self.long = True
        return True

    def end(self) -> bool:
        """Note an acknowledgement, or that none is expected any more; return whether the silence was long."""
        was_long, self.long = self.long, False
        self._since = None
        return was_long


ACKNOWLEDGEMENT_TIMEOUT_S = 10.0
"""Seconds, or else three intervals, without an acknowledgement after which a warning says so."""

LAST_TRY = 1.0
"""Seconds that the last report takes at most where no broker has taken a connection since the start."""

NO_ANSWER = "the broker does not answer"

REPLACE = 1.0
"""Seconds that the end of a producer may take where another one replaces it."""

_log = logging.getLogger("tallystream")


class KafkaReporter(ScheduledReporter):
    """Publishes a registry to Kafka: every `interval` seconds, at `report_now()`, and when it stops.

    Delivery: what was acknowledged is counted once, whatever is killed, restarted or sent again. A snapshot replaces
    the one before it, so at most one record is under way and the newest values are sent next. A broker that is down
    neither blocks nor fails an update, and takes no memory: a warning says that nothing arrives, and `connected` is
    False. Increments that a killed process had not published are lost, one interval's at most: `report_now()` before a
    commit closes that gap.

    Args:
        registry: what is reported. Several reporters of one registry must have different topics or clusters.
        bootstrap_servers: host:port, several with commas between.
        instance: the instance ID, which becomes the key of the records: stable over restarts, up to 1024 bytes.
        interval: seconds between two reports, from 0.01 to 3600.
        include, exclude: shell patterns of the names of metrics: those that match an `include` and no `exclude`.
        topic: where to.
        options: any option of librdkafka (TLS, SASL, client.id …) but those that the guarantees rest on.
        own_metrics: whether the registry shows what this reporter does, as `tallystream.reporter.*`.
        local_stats: whether histograms and timers have mean, stddev and p50 … p999 of this instance's sample, too. The
            aggregator has no use for them: its percentiles are those of all instances, from the sketches.

    Raises:
        ConfigError: an argument can't be used; `start()` and `report_now()` raise it for what librdkafka refuses.
        DuplicateReporterError: of `start()` and `report_now()`: another reporter reports the registry to the same topic
            of the same cluster. Where that is found out later, since no broker could be reached, the later one to
            reach it stops, with a line in the log, before it has sent anything.
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
        local_stats: bool = False,
        producer: Callable[[Mapping[str, Any], Callable[[KafkaError], None]], Producer] = make_producer,
    ) -> None:
        registry = registry_of(registry)
        self._link = Connection(producer_options(bootstrap_servers, options), producer)
        self.instance = check_instance(instance)
        self.topic = topic
        self.sent = 0
        self._local_stats = local_stats
        self._selection = MetricFilter(include, exclude)
        self._servers = bootstrap_servers
        self._account: destinations.Destination | None = None
        self._lives = LifeHistory(registry.app, 1000)
        self._identified = False  # the cluster's ID is known
        self._owed = False  # a report is due, and is sent when no record is under way
        self._closing = False
        self._silence = AcknowledgementTimeout(max(ACKNOWLEDGEMENT_TIMEOUT_S, 3 * interval), registry.clock.monotonic)
        super().__init__(registry, interval=interval, own_metrics=own_metrics)
        if local_stats:
            registry.keep_samples()

    def __repr__(self) -> str:
        return f"<KafkaReporter of {self.registry.app!r} as {self.instance!r} to {self.topic!r}>"

    @property
    def connected(self) -> bool:
        """Whether the last record arrived, and no connection has failed since, as of the last report."""
        return self._link.is_connected and not self._silence.long

    def _open(self) -> None:
        if self._account is None:
            self._account = destinations.claim(self, self.registry, self._servers, self.topic, self.instance)
        self._link.open()

    def _identify(self, timeout: float) -> bool:
        """Return whether the cluster is known; ask for its ID for `timeout` seconds at most.

        Nothing is sent before it is known: another reporter may report the registry there, under another address.
        """
        if not self._identified and self._account is not None:
            cluster = self._link.cluster(self.topic, timeout)
            if cluster is not None:
                self._account = destinations.identify(self._account, cluster, self, self.registry)
                self._lives = self._account.lives
                self._lives.every_ms = round(self.interval * 1000)
                self._identified = True
        return self._identified

    def _report(self) -> bool:
        self._silence.begin()
        self._poll(0)
        self._owed = True
        return self._send_if_free()

    def _attend(self) -> bool:
        self._poll(0)
        return self._send_if_free()

    def _send_if_free(self) -> bool:
        if self._owed and self._identify(LONGEST_REQUEST) and not self._lives.in_flight:
            self._send(final=False)
        return self._owed or bool(self._lives.in_flight)

    def _report_and_wait(self, timeout: float, *, final: bool) -> bool:
        deadline, last_try = (Deadline(seconds, self._monotonic) for seconds in (timeout, min(timeout, LAST_TRY)))

        def left() -> float:
            return (last_try if final and self._was_never_reached else deadline).left()

        self._silence.begin()
        while not self._identify(left()) and left():
            self._poll(min(left(), 0.05))
        while self._identified:
            self._wait_until_free(left)
            records = self._send(final=final)
            self._wait_until_free(left)
            if records and not self._lives.incomplete and all(self._lives.has(record) for record in records):
                return True
            # A life that ended early is followed by a new one at once; after any other failure it returns False.
            if not records or self._lives.in_flight or not self._lives.new_life_due:
                break
        if final and self._was_never_reached:
            what = "this process reported no metrics: none have arrived at %s: %s"
            _log.warning(what, self._servers, self._link.error or NO_ANSWER)
        return False

    @property
    def _was_never_reached(self) -> bool:
        return not (self.sent or self._identified) and (self._link.all_down or self._silence.long)

    def _wait_until_free(self, left: Callable[[], float]) -> None:
        while self._lives.in_flight and (seconds := left()):
            self._poll(min(seconds, 0.1))

    def _poll(self, seconds: float) -> None:
        self._link.poll(seconds)
        if self._silence.becomes_long():
            what = f"no metrics have arrived at {self._servers} for {self._silence.limit:g} s"
            self._error(what, self._link.error or NO_ANSWER, logging.WARNING)

    def _send(self, *, final: bool) -> list[PendingRecord]:
        """Send the values of this moment, and return the records; none while others are in flight."""
        if self._lives.in_flight:
            return []
        self._owed = False
        if self._link.broken:
            self._close_link(Deadline(REPLACE, self._monotonic))
        self._open()  # a fork may have closed it since the report came due
        registry, begin = self.registry, self._monotonic()
        metrics = self._selection.apply(registry.snapshot(views=self._local_stats))
        self._lives.app = registry.app
        ready = self._lives.prepare(metrics, registry.clock.now(), final=final, groups=registry.groups())
        for sentence in self._lives.errors:
            self._error("metrics are not reported", sentence)
        self._lives.errors.clear()
        for outgoing in ready:
            self._produce(outgoing)
        if self._own:
            self._own.duration.update(self._monotonic() - begin)
        return ready

    def _produce(self, outgoing: PendingRecord) -> None:
        key, value = self.instance.encode(), outgoing.value
        try:
            self._link.produce(self.topic, key, value, lambda *landed: self._on_delivery(outgoing, *landed))
        except Exception as error:  # noqa: BLE001 - the record was not taken, and the next report has newer values
            _log.debug("the failure in full", exc_info=True)
            self._lives.failed(outgoing, never_sent=True)
            self._error(f"a snapshot for {self.topic!r} can't be sent", error)

    def _on_delivery(self, outgoing: PendingRecord, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.sent += 1
            if self._silence.end():
                _log.info("metrics arrive at %s again", self._servers)
            if self._own:
                self._own.sent.inc()
                self._own.bytes.inc(len(outgoing.value))
            self._lives.acknowledged(outgoing, append_ms(message), self.registry.clock.now())
            self._owed = self._owed or self._lives.new_life_due
            if self._lives.refused:
                self._error(
                    "a life has ended",
                    "its record was appended a day late, or our clock is a day ahead; a new one counts on",
                )
            return
        self._lives.failed(outgoing)
        if not self._closing:
            self._error(f"a snapshot for {self.topic!r} was not delivered", error.str())

    def _close(self, deadline: Deadline) -> None:
        self._close_link(deadline)
        self._silence.end()
        if self._account is not None:
            self._account.release()
            self._account, self._identified = None, False

    def _close_link(self, deadline: Deadline) -> None:
        self._closing = True
        try:
            self._link.close(lambda: self._lives.in_flight, deadline)
        finally:
            self._closing = False
        # It is not known whether what is still under way arrives; the next record of its life settles that.
        for outgoing in self._lives.in_flight:
            self._lives.failed(outgoing)

    def _rest(self, deadline: Deadline) -> None:
        if self._link.may_be_searching:
            self._close_link(deadline)

    def _abandon(self) -> None:
        self._link.abandon()
        self._account, self._identified = None, False
        self._lives = LifeHistory(self.registry.app, 1000)
        self.sent = 0
        self._owed = False
        self._silence.end()
