"""What a reporter says of itself: metrics of the registry that it reports, named `tallystream.reporter.*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallystream.registry import MetricRegistry

PREFIX = "tallystream.reporter."


class OwnMetrics:
    """The metrics of one reporter; several of one kind in a process share them.

    Args:
        registry: where they are.
        kind: the tag `reporter`, such as kafka or console.
    """

    def __init__(self, registry: MetricRegistry, kind: str) -> None:
        tags = {"reporter": kind}
        self._clock = registry.clock
        self.sent = registry.counter(PREFIX + "sent", tags=tags)
        self.failed = registry.counter(PREFIX + "failed", tags=tags)
        self.bytes = registry.counter(PREFIX + "bytes", tags=tags)
        self.duration = registry.timer(PREFIX + "duration", tags=tags)
        self.last_error = registry.gauge(PREFIX + "last_error", tags=tags)

    def fail(self) -> None:
        """Count a failure, and note when it was: epoch seconds."""
        self.failed.inc()
        self.last_error.set(self._clock.now().wall_ms / 1000)
