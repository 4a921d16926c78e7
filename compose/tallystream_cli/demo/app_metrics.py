"""What the consumer application reports, and the same through Tallystream's reporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from tallystream import ConsumerProgress, KafkaReporter, MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message

APP = "flights"
PROCESSED, DELAY, BATCH, IN_FLIGHT = "flights.processed", "flights.delay", "flights.batch", "flights.in_flight"
DURATION = "flights.batch.duration"
"""The histogram that OpenTelemetry has for the timer `BATCH`: metrics of two types have two names."""
DIRECTION, EARLY, LATE = "direction", "early", "late"
"""A tag of `DELAY` and its values, in OpenTelemetry: a histogram takes no negative values there."""


class AppMetrics(Protocol):
    """The metrics of an instance, which are published from the start of a `with` block to its end."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def in_flight(self, events: int) -> None:
        """Set the number of events that are being processed."""

    def processed(self, messages: Sequence[Message], delays: Sequence[int], seconds: float) -> None:
        """Count a batch: its messages, its delays in minutes, and the seconds that it took."""

    def publish(self, timeout_s: float) -> bool:
        """Publish all metrics, and return whether the broker has acknowledged them in time."""


class ReporterMetrics:
    """Metrics in a registry, which Tallystream's reporter publishes to the topic `metrics`.

    Without `positions` the instance counts its events alone. Positions are complete only if every instance of the
    group reports them.
    """

    def __init__(self, bootstrap_servers: str, instance: str, topic: str, *, positions: bool = True) -> None:
        # What an application needs to publish metrics: a registry, metrics, a reporter.
        registry = MetricRegistry(APP)
        self._progress = ConsumerProgress(registry, PROCESSED) if positions else None
        self._counter = registry.counter(PROCESSED)
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
        """Count a batch."""
        for delay in delays:
            self._delay.update(delay)
        self._timer.update(seconds)
        if self._progress is None:
            self._counter.inc(len(messages))
        else:
            self._progress.processed(messages)  # updates counter and positions together

    def publish(self, timeout_s: float) -> bool:
        """Publish a snapshot, and return whether the broker has acknowledged it in time."""
        return self._reporter.report_now(timeout=timeout_s)
