"""The generations of drivers: each start of a query takes a higher one, in the ledger, in one atomic step.

Kafka's transactions make it atomic. To take a generation, a driver opens a writer with the lease's transactional ID.
That fences the writer of every earlier driver and ends its transaction. So what the ledger says then is complete, and
the row with the next generation is committed only if no other driver has opened a writer meanwhile.

The rows of finished epochs, and a table that `rebuild` has given another layout, are written by the same writer. A
replaced driver can't write any.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

import msgspec

from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.lease import LeaseError
from tallystream_aggregator.stream.broker import BrokerError, FencedError, Output, Place, bounds_of
from tallystream_aggregator.stream.positions import visible_row
from tallystream_aggregator.stream.reading import backwards

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tallystream_aggregator.kafka.ledger import LedgerRow
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.stream.broker import Bounds, Broker, Writer


def lease_id(topics: Topics) -> str:
    """Return the transactional ID of the lease."""
    return f"{topics.prefix}tallystream-aggregator-lease"


def newest_row(broker: Broker, topics: Topics, kind: Literal["opened", "epoch"]) -> LedgerRow | None:
    """Return the newest row of this kind in the ledger that is visible now, or None.

    Raises:
        BrokerError: the broker did not answer in time.
    """
    place = Place(topics.ledger, 0)
    bounds = broker.bounds([place]).get(place)
    return None if bounds is None else _search(broker, place, bounds, (kind,))


def _search(
    broker: Broker, place: Place, bounds: Bounds, kinds: Collection[str], *, committed: bool = True
) -> LedgerRow | None:
    """Search backwards: each start writes a row, also one that fails, and so does each epoch."""
    for records in backwards(broker, place, bounds, committed=committed):
        found = [row for row in ledger.rows(value for *_, value in records) if row.kind in kinds]
        if found:
            return found[-1]
    return None


class Generations:
    """The access of one driver to the generations of a table with so many shards.

    `now` is the last generation that it took, or tried to take.
    """

    def __init__(self, broker: Broker, topics: Topics, *, shards: int) -> None:
        self._broker, self._topics, self._shards = broker, topics, shards
        self._ledger = Place(topics.ledger, 0)
        self._writer: Writer | None = None
        self.now = 0

    def take(self, opened: LedgerRow) -> int:
        """Take the next generation and return it. The ledger gets the row `opened`, with the generation and the time.

        A change of the layout that began before is committed now, or never.

        Raises:
            FencedError: another driver took one at the same time. Call it again only while the lease is held.
            BrokerError: the broker did not answer in time. The generation may be taken or not: call it again.
        """
        self.close()
        writer = self._broker.writer(lease_id(self._topics))
        try:
            # If the ledger was deleted, the positions have the generations of their writers.
            claimed = (visible_row(self._broker, Place(self._topics.table, n), n) for n in range(self._shards))
            # A transaction that Kafka has left open ends with this one.
            generation = 1 + max(
                self._highest(committed=False), *(0 if row is None else row.claim[0] for row in claimed)
            )
            self.now = generation
            now_ms = int(time.time() * 1000)
            writer.commit([self._output(msgspec.structs.replace(opened, generation=generation, ts=now_ms))])
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        return generation

    def write(self, rows: Sequence[LedgerRow], records: Iterable[Output] = ()) -> None:
        """Append rows to the ledger, and other records to their topics, in one transaction.

        Delivery: at least once, if it is called again after BrokerError.

        Raises:
            LeaseError: another driver has taken a generation.
            BrokerError: the broker did not answer in time.
        """
        try:
            if self._writer is None:
                self._writer = self._broker.writer(lease_id(self._topics))
                self.require_newest()
            self._writer.commit([*records, *map(self._output, rows)])
        except FencedError:
            # Another driver that opened a writer has taken a generation, or was too late and has ended.
            self.close()
            self.require_newest()
            raise BrokerError("the ledger's writer was fenced, and no other driver has the lease.") from None
        except BrokerError:
            self.close()
            raise

    def close(self) -> None:
        """Release the connections."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def require_newest(self) -> None:
        """Require that no other driver has taken a higher generation.

        Raises:
            LeaseError: one has.
            BrokerError: the broker did not answer in time.
        """
        highest = self._highest(committed=True)
        if highest > self.now:
            self.close()
            raise LeaseError(f"lease: another aggregator took over with generation {highest}, ours was {self.now}.")

    def _highest(self, *, committed: bool) -> int:
        """Return the highest generation in the ledger, 0 if it has none. Its rows are in the order of generations."""
        bounds = bounds_of(self._broker, self._ledger)
        newest = _search(self._broker, self._ledger, bounds, ("opened", "epoch"), committed=committed)
        return 0 if newest is None else newest.generation

    def _output(self, row: LedgerRow) -> Output:
        return Output(self._ledger, None, ledger.encode(row))
