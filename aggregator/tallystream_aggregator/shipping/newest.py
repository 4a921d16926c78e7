"""The loop of `tallystream ship` for a store of only the newest sums: read, show when they are up to date."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from tallystream.log_throttle import RateLimitFilter
from tallystream_aggregator.shipping.shipper import note
from tallystream_aggregator.shipping.tail import Tail
from tallystream_aggregator.stream.broker import BrokerError, LostRecordsError, Place

if TYPE_CHECKING:
    from tallystream.process.signals import SignalSafeEvent
    from tallystream_aggregator.health import Health
    from tallystream_aggregator.shipping.points import PointMapper
    from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink
    from tallystream_aggregator.stream.broker import Broker

log = logging.getLogger(__name__)
log.addFilter(RateLimitFilter())

SUMS = "the newest sums"
"""What the shipper waits for, in the health response."""

EVERY_S = 0.5
"""The pause between two reads, in seconds."""

MAX_AGE_S = 30.0
"""The longest time since the sums were known to be up to date for which they are shown, in seconds."""


class NewestSums:
    """Shows only the newest sums of the topic `agg`, while they are up to date. For one thread.

    They are as of a moment when all records up to the topic's end are read. So an old sum is never shown as the newest.
    """

    def __init__(
        self,
        agg: str,
        broker: Broker,
        mapper: PointMapper,
        sink: PrometheusSink,
        *,
        stop: SignalSafeEvent,
        health: Health,
    ) -> None:
        self._tail = Tail(broker, lambda: [Place(agg, 0)], lambda _: self._begin())
        self._mapper, self._sink, self._stop, self._health = mapper, sink, stop, health
        self._fresh_s = float("-inf")
        self._is_shown = False

    def step(self) -> bool:
        """Read to the end of the topic, and wait a little. Return whether the sums are shown.

        Raises:
            RejectedError: the broker forbids to read.
        """
        asked_s, status = time.monotonic(), self._health.status
        try:
            for records in self._tail.to_end():
                if self._stop.is_set():
                    return False
                points = self._mapper.newest(records)
                rejected = self._sink.write(points)
                note(self._health.internal_metrics, len(records), len(points), self._mapper, len(rejected))
                self._withdraw_old()
        except (BrokerError, LostRecordsError) as error:
            log.warning("%s; trying again", error)
        else:
            status.checked()
            self._sink.show()
            self._fresh_s, self._is_shown = asked_s, True
        self._withdraw_old()
        self._stop.wait(EVERY_S)
        return status.unready_reason() is None

    def _begin(self) -> None:
        """Forget the sums of a topic that was deleted and created again, or begin."""
        self._health.status.run()
        self._sink.clear()
        self._is_shown, self._fresh_s = False, float("-inf")
        self._health.status.waiting_for = SUMS

    def _withdraw_old(self) -> None:
        """Show no sums that were known long ago. Health says whether any are shown."""
        age_s = time.monotonic() - self._fresh_s
        if MAX_AGE_S < age_s < float("inf"):
            reason = f"the newest sums were last known {age_s:.0f} s ago"
            if self._is_shown:
                log.warning("%s; no sums are shown until then", reason)
            self._is_shown = False
            self._sink.withdraw(reason)
        self._health.status.waiting_for = None if self._is_shown else SUMS
