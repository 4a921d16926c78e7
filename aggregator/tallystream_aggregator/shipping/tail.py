"""Reads partitions on and on, as far as their records are committed: each from a position, or from its beginning."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tallystream.errors import TallystreamError
from tallystream.log_throttle import RateLimitFilter
from tallystream_aggregator.stream.broker import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tallystream_aggregator.stream.broker import Bounds, Broker, Place, Positions, Source

log = logging.getLogger(__name__)
log.addFilter(RateLimitFilter())

MAX_BYTES = 4 << 20
"""The bytes after which a read ends. A record of `metrics-table` may have ten thousand metrics."""

READ_AT_ONCE = 500
"""The most records that are read before their bytes are counted."""


class Record(NamedTuple):
    """A record as it was read."""

    topic: str
    offset: int
    key: bytes | None
    value: bytes | None


class Tail:
    """The committed records of some partitions. For one thread.

    `places` returns those that exist. `positions` are the next offsets to read. `restarted` is called with those of
    partitions that are read from their beginning: at first, unless `begin` says otherwise, and when the topic was
    deleted and created again, or has no record at the position any more.
    """

    def __init__(
        self,
        broker: Broker,
        places: Callable[[], Collection[Place]],
        restarted: Callable[[Positions], object] = lambda _: None,
    ) -> None:
        self._broker, self.places, self.restarted = broker, places, restarted
        self._source: Source | None = None
        self._ids: dict[str, str] = {}
        self._existing: set[Place] = set()
        self.positions: Positions = {}

    def begin(self, positions: Positions) -> None:
        """Read on from these positions. The first `read` has to follow an `ask`."""
        self.close()
        self.positions, self._ids, self._existing = dict(positions), {}, set()

    def ask(self) -> dict[Place, Bounds]:
        """Ask the brokers about the partitions, and return the bounds of all that exist.

        Kafka does not tell a consumer that a topic was created again. If the new one is longer than the position, it
        would go on in the middle.

        Raises:
            BrokerError: the brokers did not answer in time, or no partition exists.
        """
        places = self.places()
        ids = self._broker.topic_ids({place.topic for place in places})
        bounds = self._broker.bounds(places)
        if not bounds:
            names = ", ".join(sorted({place.topic for place in places})) or "the topic"
            raise BrokerError(f"{names}: it does not exist, or has no partition yet.")
        again = {
            place: found.first
            for place, found in bounds.items()
            if ids.get(place.topic) != self._ids.get(place.topic, ids.get(place.topic))
            or not found.first <= self.positions.get(place, -1) <= found.end
        }
        if lost := again.keys() & self.positions.keys():
            log.warning("%s: created again, or records are gone: reading from the beginning", ", ".join(map(str, lost)))
        if again:
            self.restarted(again)
        if again or bounds.keys() != self._existing:
            self.close()
        self.positions |= again
        self._ids |= ids
        self._existing = set(bounds)
        return bounds

    def read(self, limit: int, timeout_s: float) -> list[Record]:
        """Return about `limit` next records at most, of about `MAX_BYTES`. Wait up to `timeout_s` s for the first one.

        Raises:
            BrokerError: the broker rejects the request.
            LostRecordsError: a position has no record any more: `ask`.
            RejectedError: this user may not read it.
        """
        records: list[Record] = []
        positions, at_once, size = dict(self.positions), min(limit, READ_AT_ONCE), 0
        try:
            if self._source is None:
                self._source = self._broker.source(committed=True)
                self._source.assign({place: positions[place] for place in self._existing})
            is_full = True
            while is_full and len(records) < limit and size < MAX_BYTES:
                chunks = self._source.read(at_once, 0.0 if records else timeout_s)
                for chunk in chunks:
                    positions[chunk.place] = chunk.end
                    records += [Record(chunk.place.topic, offset, key, value) for offset, _, key, value in chunk.rows]
                    size += sum(len(value or b"") for *_, value in chunk.rows)
                is_full = sum(len(chunk.rows) for chunk in chunks) >= at_once
        except TallystreamError:
            self.close()
            raise
        self.positions = positions
        return records

    def close(self) -> None:
        """Release the connection. The next `read` opens another one."""
        if self._source is not None:
            self._source.close()
            self._source = None
