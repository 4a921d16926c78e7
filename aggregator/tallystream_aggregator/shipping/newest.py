"""The loop of `tallystream ship` for a store of only the newest sums: read, show when they are up to date."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from tallystream.log_throttle import RateLimitFilter
from tallystream_aggregator.shipping.shipper import MAX_RECORDS, POLL_S, count
from tallystream_aggregator.sinks.prometheus.sink import EMPTY

if TYPE_CHECKING:
    from tallystream_aggregator.health import Health
    from tallystream_aggregator.shipping.points import PointMapper
    from tallystream_aggregator.shipping.subscription import Subscription
    from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink

log = logging.getLogger(__name__)
log.addFilter(RateLimitFilter())

SUMS = "the newest sums"
"""What the shipper waits for, in the health response."""

MAX_AGE_S = 30.0
"""The longest time since the sums were known to be up to date for which they are shown, in seconds."""


class NewestSums:
    """Shows only the newest sums, while they are up to date: after the position has reached a recent end of the topic.

    So an old sum is never shown as the newest. `subscription` reads one partition, from its beginning. For one thread.
    """

    def __init__(
        self, subscription: Subscription, mapper: PointMapper, sink: PrometheusSink, *, health: Health
    ) -> None:
        self._subscription, self._mapper, self._sink, self._health = subscription, mapper, sink, health
        self._changes = 0
        self._ends: list[tuple[float, int]] = []
        self._fresh_s: float | None = None
        self._is_shown = self._is_written = False

    def step(self) -> bool:
        """Read the next records, if there are any. Return whether the sums are shown.

        Raises:
            KafkaException: the broker forbids to read, or librdkafka has a fatal error.
        """
        batch = self._subscription.read(MAX_RECORDS, POLL_S)
        if self._subscription.changes != self._changes:
            self._begin()
        points = self._mapper.newest(batch.records)
        self._sink.write(points)
        self._is_written |= bool(points)
        self._subscription.written(batch)
        count(self._health.internal_metrics, len(batch.records), len(points), self._mapper, self._sink)
        status = self._health.status
        end = self._subscription.ask()
        if self._subscription.changes != self._changes:  # the position is one of a topic that was created again
            return False
        if end is not None:
            self._ends.append((self._subscription.answered_s, end))
            status.checked()
        self._reach(next(iter(batch.positions.values()), -1))
        status.waiting_for = None if self._is_shown else SUMS
        return status.unready_reason() is None

    def _begin(self) -> None:
        """Begin at the beginning of the topic, also of one that was created again."""
        self._changes = self._subscription.changes
        self._health.status.run()
        self._ends.clear()
        self._fresh_s = None
        self._is_shown = False
        self._sink.clear()

    def _reach(self, position: int) -> None:
        """Show the sums as of a position, or withdraw them."""
        reached = [at_s for at_s, end in self._ends if end <= position]
        if reached:
            self._fresh_s = max(reached)
            self._ends = [(at_s, end) for at_s, end in self._ends if at_s > self._fresh_s]
        reason = self._stale()
        if reason is not None:
            if self._is_shown:
                log.warning("%s; no sums are shown until then", reason)
            self._is_shown = False
            self._sink.withdraw(reason)
        elif self._is_written or not self._is_shown:
            self._sink.flush()
            self._is_shown, self._is_written = True, False

    def _stale(self) -> str | None:
        """Return why the sums may be out of date, None if they are up to date."""
        if self._fresh_s is None:
            return EMPTY
        age_s = time.monotonic() - self._fresh_s
        return None if age_s <= MAX_AGE_S else f"the newest sums were last known {age_s:.0f} s ago"
