"""Readers with `read_committed` that follow topics while a simulation runs, and the checks that they make.

A reader sees what Kafka would show it at that moment, partition by partition, in the order that the scheduler picks. It
is at a *cut* when each transaction that it has seen in one partition was seen in all: then its partitions are at equal
positions. Checks know formats only by functions that are passed in. A check that fails raises `Violation`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from support.simulation.broker import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from support.simulation.broker import SimulatedCluster
    from support.simulation.partition import Partition
    from tallystream_aggregator.stream.broker import Place


class Violation(AssertionError):  # noqa: N818 (the field's word)
    """A property does not hold."""


class Seen(NamedTuple):
    """A record that a reader saw."""

    place: Place
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


class Check:
    """What is checked while a reader reads. Each method does nothing unless it is replaced."""

    def on_record(self, record: Seen) -> None:
        """Check a record."""

    def on_cut(self) -> None:
        """Check what was read up to now: it is up to equal positions."""

    def on_end(self) -> None:
        """Check what was read: the run has ended, and it is all."""


class CommittedReader:
    """A reader of all partitions of these topics. They must not be deleted or truncated while it reads."""

    def __init__(self, cluster: SimulatedCluster, topics: Sequence[str], checks: Sequence[Check]) -> None:
        self._cluster, self._topics, self._checks = cluster, frozenset(topics), checks
        self._positions: dict[Place, int] = {}
        self._partial: dict[int, set[Place]] = {}
        """The committed transactions that were begun to read, and the partitions in which they were read to the end."""

    def actions(self, weight: int = 20) -> Iterator[Action]:
        """Yield what the reader can read now: all or one record of each partition, and everything there is."""
        behind = False
        for place in self._cluster.places(*self._topics):
            position = self._positions.get(place, 0)
            if position < self._cluster.partition(place).stable:
                behind = True
                yield Action(weight, f"reader: {place}", partial(self.read, place))
                yield Action(weight, f"reader: one of {place}", partial(self.read, place, 1))
        if behind:
            yield Action(weight, "reader: all", self.read_all)

    def read(self, place: Place, limit: int | None = None) -> None:
        """Read what a partition shows now, or up to `limit` entries of it, and check it."""
        partition = self._cluster.partition(place)
        position = max(self._positions.get(place, 0), partition.start)
        entries = list(partition.between(position, partition.stable))
        end = partition.stable if limit is None or len(entries) <= limit else entries[limit].offset
        self._positions[place] = end
        for entry in entries[:limit]:
            if partition.is_committed(entry):
                seen = Seen(place, *entry[:4])
                for check in self._checks:
                    check.on_record(seen)
        self._note(place, partition, position, end)
        if self.is_cut():
            for check in self._checks:
                check.on_cut()

    def read_all(self) -> None:
        """Read all partitions to what they show now."""
        for place in self._cluster.places(*self._topics):
            self.read(place)

    def finish(self) -> None:
        """Read everything, at the end of a run."""
        self.read_all()
        if not self.is_cut():
            raise Violation(f"transactions are in some partitions only: {self._partial}")
        for check in self._checks:
            check.on_end()

    def is_cut(self) -> bool:
        """Tell whether the partitions are at equal positions. A compacted part lacks records, so it must be passed."""
        return not self._partial and all(
            self._positions.get(place, 0) >= self._cluster.partition(place).compacted
            for place in self._cluster.places(*self._topics)
        )

    def _note(self, place: Place, partition: Partition, position: int, end: int) -> None:
        """Remember which transactions were read in part. The history has markers that were compacted away, too."""
        for entry in partition.history[position:end]:
            number = entry.transaction
            if number is None or partition.outcomes[number] != "commit":
                continue
            transaction = self._cluster.transactions[number]
            ended = self._partial.setdefault(number, set())
            if entry.marker is not None:
                ended.add(place)
            if ended >= {one for one in transaction.places if one.topic in self._topics}:
                del self._partial[number]


class NeverFalls(Check):
    """No number of a key falls, unless `may_fall` says so of (key, before, after)."""

    def __init__(
        self,
        numbers_of: Callable[[Seen], Iterable[tuple[Any, Any]]],
        may_fall: Callable[[Any, Any, Any], bool] = lambda *_: False,
    ) -> None:
        self._numbers_of, self._may_fall = numbers_of, may_fall
        self.last: dict[Any, Any] = {}

    def on_record(self, record: Seen) -> None:
        """Compare the numbers of a record with the last ones."""
        for key, number in self._numbers_of(record):
            before = self.last.get(key)
            if before is not None and number < before and not self._may_fall(key, before, number):
                raise Violation(f"{key} fell from {before} to {number} at {record.place}, offset {record.offset}")
            self.last[key] = number


class ExactlyOnce(Check):
    """Each ID is seen once, and at the end those that are expected."""

    def __init__(self, ids_of: Callable[[Seen], Iterable[Any]], expected: Callable[[], Iterable[Any]]) -> None:
        self._ids_of, self._expected = ids_of, expected
        self.seen: set[Any] = set()

    def on_record(self, record: Seen) -> None:
        """Note the IDs of a record."""
        for name in self._ids_of(record):
            if name in self.seen:
                raise Violation(f"{name} is there again, at {record.place}, offset {record.offset}")
            self.seen.add(name)

    def on_end(self) -> None:
        """Compare all IDs with the expected ones."""
        expected = Counter(self._expected())
        lost, more = expected.keys() - self.seen, self.seen - expected.keys()
        if lost or more:
            raise Violation(f"missing: {sorted(lost, key=str)}, not expected: {sorted(more, key=str)}")


class EqualsReference(Check):
    """At each cut, what was published is what a function of the input says.

    `published` gets the newest value of each (topic, partition, key) and returns what it is the result of, such as
    positions, and the result; or None if nothing is published yet. `reference` gets the first and returns the expected
    result.
    """

    def __init__(
        self,
        published: Callable[[Mapping[tuple[Place, bytes | None], bytes]], tuple[Any, Any] | None],
        reference: Callable[[Any], Any],
    ) -> None:
        self._published, self._reference = published, reference
        self.newest: dict[tuple[Place, bytes | None], bytes] = {}
        self.compared = 0
        """The number of cuts that were compared."""
        self._changed = False

    def on_record(self, record: Seen) -> None:
        """Keep the newest value of each key. A null value removes it."""
        self._changed = True
        name = (record.place, record.key)
        if record.value is None:
            self.newest.pop(name, None)
        else:
            self.newest[name] = record.value

    def on_cut(self) -> None:
        """Compare what was read with the reference."""
        if not self._changed:
            return
        self._changed = False
        found = self._published(self.newest)
        if found is None:
            return
        at, result = found
        expected = self._reference(at)
        if result != expected:
            raise Violation(f"published at {at}: {result}, but it should be {expected}")
        self.compared += 1

    def on_end(self) -> None:
        """Compare once more."""
        self._changed = True
        self.on_cut()
