"""The generations of drivers: each start of a query takes a higher one, in the ledger, in one atomic step.

Kafka's transactions make it atomic. To take a generation, a driver opens a writer with the lease's transactional ID.
That fences the writer of every earlier driver and ends its transaction. So what the ledger says then is complete, and
the row with the next generation is committed only if no other driver has opened a writer meanwhile.

The positions of finished epochs, and a table that `rebuild` has given another layout, are written by the same writer,
so a replaced driver can't write them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.lease import LeaseError
from tallystream_aggregator.stream.broker import BrokerError, FencedError, Output, Place, bounds_of
from tallystream_aggregator.stream.positions import by_place, by_topic, lowest, visible_row
from tallystream_aggregator.stream.reading import backwards

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.kafka.ledger import LedgerRow
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.stream.broker import Broker, Writer


def lease_id(topics: Topics) -> str:
    """Return the transactional ID of the lease."""
    return f"{topics.prefix}tallystream-aggregator-lease"


def newest_row(broker: Broker, place: Place, *, committed: bool = True) -> LedgerRow | None:
    """Return the newest row of the ledger, or None if it has none.

    Raises:
        BrokerError: the broker did not answer in time, or does not know the partition.
    """
    for records in backwards(broker, place, bounds_of(broker, place), committed=committed):
        if found := list(ledger.rows(value for *_, value in records)):
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
        """Take the next generation and return it.

        The ledger gets the row `opened`, with the generation, the time and the published positions. A change of the
        layout that began before is committed now, or never.

        Raises:
            FencedError: another driver took one at the same time. Call it again only while the lease is held.
            BrokerError: the broker did not answer in time. The generation may be taken or not: call it again.
        """
        self.close()
        self._writer = self._broker.writer(lease_id(self._topics))
        found = [visible_row(self._broker, Place(self._topics.table, n), n) for n in range(self._shards)]
        published = [row for row in found if row is not None]
        # If the ledger was deleted, the positions have the generations of their writers. A transaction that Kafka has
        # left open ends with this one.
        self.now = 1 + max([self._highest(committed=False), *(row.claim[0] for row in published)])
        ends = [row.positions for row in published if len(published) == self._shards]
        end = by_topic(lowest(map(by_place, ends)))
        apart = ends if any(one != end for one in ends) else []
        self._commit(msgspec.structs.replace(opened, generation=self.now, end=end, shard_ends=apart))
        return self.now

    def change(self, row: LedgerRow, records: Iterable[Output] = ()) -> None:
        """Append a row to the ledger, and other records to their topics, in one transaction. Take a generation first.

        Raises:
            LeaseError: another driver has taken a generation.
            BrokerError: it failed. The transaction may be visible now or later, or never.
        """
        try:
            if self._writer is None:  # a commit has failed
                self.require_newest()  # else the new writer would end a transaction of the driver that has replaced us
                self._writer = self._broker.writer(lease_id(self._topics))
                self.require_newest()
            self._commit(msgspec.structs.replace(row, generation=self.now), records)
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
            raise LeaseError(f"lease: another aggregator took over with generation {highest}, ours was {self.now}.")

    def _highest(self, *, committed: bool) -> int:
        """Return the highest generation in the ledger, 0 if it has none. Its rows are in the order of generations."""
        newest = newest_row(self._broker, self._ledger, committed=committed)
        return 0 if newest is None else newest.generation

    def _commit(self, row: LedgerRow, records: Iterable[Output] = ()) -> None:
        assert self._writer is not None
        timed = msgspec.structs.replace(row, ts=int(time.time() * 1000))
        self._writer.commit([*records, Output(self._ledger, None, ledger.encode(timed))])
