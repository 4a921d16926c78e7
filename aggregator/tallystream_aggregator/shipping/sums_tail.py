"""Reads `metrics-agg` from its beginning, and goes on to its end as often as somebody wants the newest sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_aggregator.shipping.subscription import Record
from tallystream_aggregator.stream.broker import Place, bounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream_aggregator.stream.broker import Broker, Source

MAX_RECORDS = 10_000
"""The most records that are read at a time."""

POLL_S = 0.2
"""The longest wait for a record, in seconds, and so for a stop."""


class SumsTail:
    """The committed records of the topic `agg`. For one thread.

    `clear` is called before the first record, also that of a topic that was deleted and created again, or that has no
    record at the position any more.
    """

    def __init__(self, agg: str, broker: Broker, clear: Callable[[], object]) -> None:
        self._place, self._broker, self._clear = Place(agg, 0), broker, clear
        self._ids: dict[str, str] | None = None
        self._position = 0
        self._source: Source | None = None

    def read(self) -> Iterator[list[Record]]:
        """Yield the next records up to the topic's present end, in offset order; an empty list if it has to wait.

        The next call goes on after the last list, also after an error, or if not all were taken.

        Raises:
            BrokerError: the brokers did not answer in time, or the topic does not exist.
            LostRecordsError: the topic was deleted meanwhile.
            RejectedError: this user may not read it.
        """
        place = self._place
        try:
            ids = self._broker.topic_ids([place.topic])
            bounds = bounds_of(self._broker, place)
            # Records may have been deleted, or the end cut off. The topic has all sums that are left.
            if ids != self._ids or not bounds.first <= self._position <= bounds.end:
                self.close()
                self._clear()
                self._ids, self._position = ids, bounds.first
            if self._source is None:
                self._source = self._broker.source(committed=True)
                self._source.assign({place: self._position})
            while self._position < bounds.stable:
                chunks = self._source.read(MAX_RECORDS, POLL_S)
                for chunk in chunks:
                    self._position = chunk.end
                yield [Record(place.topic, row[0], row[2], row[3]) for chunk in chunks for row in chunk.rows]
                if not chunks:
                    bounds_of(self._broker, place)  # else an outage would be waited out
        except TallystreamError:
            self.close()
            raise

    def close(self) -> None:
        """Release the connection. The next `read` opens another one."""
        if self._source is not None:
            self._source.close()
            self._source = None
