"""What the consumer application reports, through Tallystream's reporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tallystream import ConsumerProgress, KafkaReporter, MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message

APP = "flights"
PROCESSED, DELAY, BATCH, IN_FLIGHT = "flights.processed", "flights.delay", "flights.batch", "flights.in_flight"


class AppMetrics:
    """The metrics of an instance, which are published from the start of a `with` block to its end."""

    def __init__(self, bootstrap_servers: str, instance: str, topic: str) -> None:
        # What an application needs to publish metrics: a registry, metrics, a reporter.
        registry = MetricRegistry(APP)
        self._progress = ConsumerProgress(registry, PROCESSED)
        self._delay = registry.histogram(DELAY)
        self._timer = registry.timer(BATCH)
        self._in_flight = registry.gauge(IN_FLIGHT)
        self._in_flight.set(0)
        self._reporter = KafkaReporter(registry, bootstrap_servers=bootstrap_servers, instance=instance, topic=topic)

    def __enter__(self) -> Self:
        self._reporter.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._reporter.stop()

    def in_flight(self, events: int) -> None:
        """Set the number of events that are being processed."""
        self._in_flight.set(events)

    def processed(self, messages: Sequence[Message], delays: Sequence[int], seconds: float) -> None:
        """Count a batch: its messages, its delays in minutes, and the seconds that it took."""
        for delay in delays:
            self._delay.update(delay)
        self._timer.update(seconds)
        self._progress.processed(messages)  # updates counter and positions together

    def publish(self, timeout_s: float) -> bool:
        """Publish a snapshot, and return whether the broker has acknowledged it in time."""
        return self._reporter.report_now(timeout=timeout_s)
