"""Kafka in memory: topics, and the coordinator of transactions. It does nothing by itself and has no threads.

Whatever Kafka does on its own time is an action that the scheduler picks (`SimulatedCluster.actions`): the markers of
an ended transaction, one partition after the other, and requests that arrive after their client gave up.

As in Kafka since 3.6:

- A transactional ID has an epoch. Opening a writer raises it, and everything with a lower epoch is refused.
- The coordinator decides the end of a transaction at one moment. Each partition shows it when its marker is written.
- The next transaction of the ID begins when all markers are written, and so does a new writer.
- The request that ends a transaction names no transaction: it ends the one that is open when it arrives.
- A record is accepted only in an open transaction that the partition was added to.
- A marker ends all that its transactional ID has open in the partition, as an earlier marker may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from support.simulation.partition import Entry, Outcome, Partition
from tallystream_aggregator.stream.broker import Bounds, BrokerError, FencedError, LostRecordsError, Place, unknown

BEGIN_MS = 1_790_000_000_000
"""The wall time at which a simulation begins."""


class Action(NamedTuple):
    """Something that can happen now, and how likely it is in comparison with the others."""

    weight: int
    name: str
    run: Callable[[], object]


@dataclass
class Transaction:
    """A transaction as its coordinator knows it. `outcome` is None while it is open."""

    number: int
    transactional_id: str
    epoch: int
    places: list[Place] = field(default_factory=list)
    outcome: Outcome | None = None
    unmarked: list[Place] = field(default_factory=list)
    """The partitions whose marker is still to be written."""
    written: list[tuple[Place, Entry]] = field(default_factory=list)
    """Its records. Only observers may read it: compaction removes them from the log."""


@dataclass
class Topic:
    """A topic. Its ID is another one when it is created again."""

    topic_id: str
    partitions: list[Partition]


class SimulatedCluster:
    """A Kafka cluster in memory."""

    def __init__(self) -> None:
        self.now_ms = BEGIN_MS
        """The right time. The scheduler moves it, never back."""
        self.clock_offset_ms: dict[Place, int] = {}
        """How wrong the clock of a partition's leader is. Append times are `now_ms` plus this."""
        self.topics: dict[str, Topic] = {}
        self.transactions: list[Transaction] = []
        """All transactions that ever were, by number. Only observers may read it."""
        self.epochs: dict[str, int] = {}
        self.in_flight: list[tuple[str, Callable[[], object]]] = []
        """Requests whose client has given up, and which may still arrive."""
        self._current: dict[str, Transaction] = {}
        self._ids = 0

    # Topics.

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic, or add partitions to it, so that it has this many."""
        found = self.topics.get(topic)
        if found is None:
            self._ids += 1
            found = self.topics[topic] = Topic(f"id-{self._ids}", [])
        found.partitions += [Partition() for _ in range(partitions - len(found.partitions))]

    def delete(self, topic: str) -> None:
        """Delete a topic with its records. Transactions go on without its partitions."""
        del self.topics[topic]
        for transaction in self.transactions:
            transaction.unmarked = [place for place in transaction.unmarked if place.topic != topic]
            self._complete(transaction)

    def find(self, place: Place) -> Partition | None:
        """Return a partition, or None if it does not exist."""
        topic = self.topics.get(place.topic)
        if topic is None or place.partition >= len(topic.partitions):
            return None
        return topic.partitions[place.partition]

    def partition(self, place: Place) -> Partition:
        """Return a partition.

        Raises:
            BrokerError: it does not exist.
        """
        found = self.find(place)
        if found is None:
            raise BrokerError(f"there is no {place}")
        return found

    def places(self, *topics: str) -> list[Place]:
        """Return the partitions that exist of these topics, or of all topics."""
        names = topics or tuple(self.topics)
        return [Place(t, n) for t in names if t in self.topics for n in range(len(self.topics[t].partitions))]

    def bounds(self, places: Collection[Place]) -> dict[Place, Bounds]:
        """Return the bounds of those of these partitions that exist."""
        found = {place: self.find(place) for place in places}
        return {place: partition.bounds for place, partition in found.items() if partition is not None}

    def append(self, place: Place, key: bytes | None, value: bytes | None) -> int:
        """Append a record of a producer without transactions and return its offset."""
        return self.partition(place).append(self.time_ms(place), key, value)

    def time_ms(self, place: Place) -> int:
        """The time by the clock of a partition's leader, in epoch ms."""
        return self.now_ms + self.clock_offset_ms.get(place, 0)

    def fetch(self, place: Place, position: int, limit: int, *, committed: bool = False) -> tuple[list[Entry], int]:
        """Return up to `limit` records from a position on, and the position after them.

        A `committed` reader gets no record of an aborted transaction, and none after the last stable offset.

        Raises:
            LostRecordsError: the position is out of range.
            BrokerError: there is no such partition.
        """
        partition = self.find(place)
        if partition is None:
            raise unknown(place)
        if not partition.start <= position <= partition.end:
            raise LostRecordsError(place, position, partition.bounds)
        end = partition.stable if committed else partition.end
        records: list[Entry] = []
        for entry in partition.between(position, end):
            if entry.marker is None and (not committed or partition.is_committed(entry)):
                if len(records) == limit:
                    return records, entry.offset
                records.append(entry)
        return records, max(position, end)

    # Transactions. Each method is one request to the coordinator or to a partition's leader.

    def is_ending(self, transactional_id: str) -> bool:
        """Tell whether markers of a transaction with this ID are still to be written."""
        current = self._current.get(transactional_id)
        return current is not None and current.outcome is not None

    def open_writer(self, transactional_id: str) -> int | None:
        """Raise the epoch and return it, or None while a transaction is ending: then the client asks again.

        An open transaction is aborted, which fences its writer at once.
        """
        current = self._current.get(transactional_id)
        if current is None:
            self.epochs[transactional_id] = self.epochs.get(transactional_id, -1) + 1
            return self.epochs[transactional_id]
        if current.outcome is None:
            self.expire(transactional_id)
        return None

    def expire(self, transactional_id: str) -> None:
        """Abort the open transaction, as the coordinator does after the timeout, too. This fences its writer."""
        current = self._current[transactional_id]
        self.epochs[transactional_id] += 1
        self._decide(current, "abort")

    def add_partitions(self, transactional_id: str, epoch: int, places: Collection[Place]) -> None:
        """Begin a transaction if none is open, and add partitions to it.

        Raises:
            FencedError: the ID has a higher epoch.
            BrokerError: the markers of the last one are not all written, or a partition does not exist.
        """
        self._require(transactional_id, epoch)
        for place in places:
            self.partition(place)
        current = self._current.get(transactional_id)
        if current is None:
            current = Transaction(len(self.transactions), transactional_id, epoch)
            self.transactions.append(current)
            self._current[transactional_id] = current
        elif current.outcome is not None:
            raise BrokerError(f"the last transaction of {transactional_id} is still ending")
        current.places += [place for place in places if place not in current.places]

    def produce(
        self, transactional_id: str, epoch: int, place: Place, records: Collection[tuple[bytes | None, bytes | None]]
    ) -> None:
        """Append records of the open transaction.

        Raises:
            FencedError: the ID has a higher epoch.
            BrokerError: no transaction is open, or it does not have the partition.
        """
        self._require(transactional_id, epoch)
        current = self._current.get(transactional_id)
        if current is None or current.outcome is not None or place not in current.places:
            raise BrokerError(f"{place} is in no open transaction of {transactional_id}")
        partition = self.partition(place)
        for key, value in records:
            offset = partition.append(self.time_ms(place), key, value, current.number)
            current.written.append((place, Entry(offset, 0, key, value)))

    def end(self, transactional_id: str, epoch: int, outcome: Outcome) -> None:
        """Decide how the transaction ends that is open now. If none is, only a repetition of its end is accepted.

        Raises:
            FencedError: the ID has a higher epoch.
            BrokerError: no transaction is open, or it ended in the other way.
        """
        self._require(transactional_id, epoch)
        current = self._current.get(transactional_id)
        if current is not None and current.outcome is None:
            self._decide(current, outcome)
            return
        mine = [t for t in self.transactions if t.transactional_id == transactional_id and t.epoch == epoch]
        if not mine or mine[-1].outcome != outcome:
            raise BrokerError(f"no transaction of {transactional_id} can {outcome}")

    def open_transactions(self) -> list[Transaction]:
        """Return the transactions that have no outcome yet."""
        return [transaction for transaction in self._current.values() if transaction.outcome is None]

    def ending(self) -> list[Transaction]:
        """Return the transactions with an outcome whose markers are not all written."""
        return [transaction for transaction in self._current.values() if transaction.outcome is not None]

    def write_markers(self) -> None:
        for transaction in self.ending():
            for place in list(transaction.unmarked):
                self._mark(transaction, place)

    def _require(self, transactional_id: str, epoch: int) -> None:
        newest = self.epochs.get(transactional_id)
        if newest != epoch:
            raise FencedError(f"transactional ID {transactional_id}: epoch {epoch} is fenced by {newest}")

    def _decide(self, transaction: Transaction, outcome: Outcome) -> None:
        transaction.outcome = outcome
        transaction.unmarked = [place for place in transaction.places if self.find(place) is not None]
        self._complete(transaction)

    def _mark(self, transaction: Transaction, place: Place) -> None:
        assert transaction.outcome is not None
        transaction.unmarked.remove(place)
        partition = self.partition(place)
        hanging = [n for n in partition.open if self.transactions[n].transactional_id == transaction.transactional_id]
        partition.mark(self.time_ms(place), transaction.number, transaction.outcome, hanging)
        self._complete(transaction)

    def lose_markers(self, transaction: Transaction, places: Collection[Place]) -> None:
        """Write no marker of an ending transaction in these partitions, as Kafka 4.3.1 for those without a leader."""
        transaction.unmarked = [place for place in transaction.unmarked if place not in places]
        self._complete(transaction)

    def _complete(self, transaction: Transaction) -> None:
        done = transaction.outcome is not None and not transaction.unmarked
        if done and self._current.get(transaction.transactional_id) is transaction:
            del self._current[transaction.transactional_id]

    # What happens on the cluster's own time.

    def actions(self) -> Iterator[Action]:
        """Yield what the cluster can do now: write a marker, or take a request that was delayed."""
        for transaction in self._current.values():
            for place in transaction.unmarked:
                yield Action(60, f"marker {place}", partial(self._mark, transaction, place))
        for number, (name, _) in enumerate(self.in_flight):
            yield Action(5, f"late {name}", partial(self._arrive, number))

    def _arrive(self, number: int) -> None:
        _, request = self.in_flight.pop(number)
        try:
            request()
        except (BrokerError, FencedError):
            return  # its client has gone
