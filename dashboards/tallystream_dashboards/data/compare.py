"""What producers sent against what consumers processed: lost, in flight and counted twice, each within bounds. Pure.

All numbers are of records, and they add up: sent + twice = counted + lost + in flight. A number is known exactly, or
lies between two bounds. What is known of each comes from counts and from ranges of offsets:

- A record that was sent has an offset in one of the ranges. So offsets without a counted record (of transactions, of
  other producers, of a killed one that did not report) are what widens the bounds. If it is not known at which offsets
  records were sent, every offset is taken to have one.
- Consumers commit what they have counted and reported. So between the first and the last offset that were processed,
  each was counted. This is not used with `commits_first`, nor if the counts disprove it.
- Every record that was processed was taken before. So records that were taken twice are the most that were processed
  twice (docs/metrics.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Place(NamedTuple):
    """A partition, by the values of the tags `topic` and `partition`."""

    topic: str
    partition: str


class Range(NamedTuple):
    """The offsets from `start` to `end`, exclusive."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Counted:
    """A count of records, and between which offsets they are in each partition. Without ranges, that is not known.

    `overlap` is how many of these offsets metrics with different tags have in common.
    """

    count: int
    ranges: Mapping[Place, Range]
    overlap: int = 0

    @property
    def has_positions(self) -> bool:
        """Whether it is known where the records are."""
        return bool(self.ranges) or not self.count

    @property
    def topics(self) -> set[str]:
        """The topics that the records are known to be in."""
        return {place.topic for place in self.ranges}

    @property
    def surplus(self) -> int:
        """By how much the count exceeds the number of offsets."""
        return self.count - sum(one.size for one in self.ranges.values()) - self.overlap


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number that lies between two bounds. `at_most` is None if there is no upper one."""

    at_least: int = 0
    at_most: int | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the number is known."""
        return self.at_least == self.at_most

    @property
    def known(self) -> int | None:
        """The lower bound; None if nothing is known of the number."""
        return self.at_least if self.at_least or self.at_most is not None else None

    def __str__(self) -> str:
        if self.is_exact:
            return "exact"
        return f"at least {self.at_least:,}" + ("" if self.at_most is None else f", at most {self.at_most:,}")


class OfPartition(NamedTuple):
    """The offsets of a partition that are known, and those that were processed; an empty range if none was."""

    place: Place
    known: Range
    processed: Range

    @property
    def in_flight(self) -> int:
        """The number of offsets after the last one that was processed."""
        return self.known.end - self.processed.end

    @property
    def before(self) -> int:
        """The number of offsets before the first one that was processed."""
        return self.processed.start - self.known.start


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was sent and what became of it. `processed_twice` includes what was processed and not counted.

    `why` has a sentence for everything that keeps a number from being exact.
    """

    sent: Bounds
    counted: Bounds
    lost: Bounds
    in_flight: Bounds
    twice: Bounds
    processed_twice: Bounds
    partitions: tuple[OfPartition, ...]
    why: tuple[str, ...]

    @property
    def is_bad(self) -> bool:
        """Whether records were certainly lost or processed twice."""
        return bool(self.lost.at_least or self.twice.at_least)


def compare(
    sent: Counted | None,
    counted: Counted,
    *,
    taken: Counted | None = None,
    uncommitted: int | None = None,
    commits_first: bool = False,
) -> Comparison:
    """Compare what was `sent` (None: unknown) with what was `counted` as processed, and `taken` before the work.

    `uncommitted` is the number of offsets that the consumers have not committed, if it is known. `commits_first` says
    that consumers commit offsets before they count the records.
    """
    taken = taken if taken is not None and _covers(taken, counted) else None
    partitions = _partitions([one for one in (sent, counted, taken) if one is not None], counted)
    why: list[str] = []
    of_sent, lost, in_flight, empty = _of_offsets(sent, counted, partitions, why)
    if uncommitted is not None and in_flight.at_most is None:
        in_flight = Bounds(0, uncommitted)
    twice, uncounted = _of_counts(counted, empty, commits_first=commits_first, why=why)
    lost = Bounds(lost.at_least + uncounted, None if uncounted or commits_first else lost.at_most)
    counts = Bounds(counted.count, counted.count)
    for _ in range(2):
        (of_sent, twice), (counts, lost, in_flight) = _balanced([of_sent, twice], [counts, lost, in_flight])
    most = None
    if taken is None:
        why.append("What was taken before the work is not known, so neither what killed processes worked on.")
    elif twice.at_most is not None:
        most = max(taken.surplus + (empty or 0), twice.at_most)
        if most > twice.at_least:
            unfinished = taken.count - counted.count
            why.append(f"{unfinished:,} records were taken and not counted: in work, or by a process that was killed.")
    return Comparison(
        sent=of_sent,
        counted=counts,
        lost=lost,
        in_flight=in_flight,
        twice=twice,
        processed_twice=Bounds(twice.at_least, most),
        partitions=tuple(partitions),
        why=tuple(why),
    )


def _of_offsets(
    sent: Counted | None, counted: Counted, partitions: Sequence[OfPartition], why: list[str]
) -> tuple[Bounds, Bounds, Bounds, int | None]:
    """Return what the offsets tell of what was sent, lost and in flight, and how many may have no record.

    The last is None if it is not known at which offsets records were sent.
    """
    if sent is None:
        return Bounds(), Bounds(), Bounds(), None
    if not sent.topics or counted.overlap or not counted.topics <= sent.topics:
        why.append("The offsets of what was sent are not known: a killed producer may have sent more than it reported.")
        return Bounds(sent.count), Bounds(), Bounds(), None
    offsets, before = sum(one.known.size for one in partitions), sum(one.before for one in partitions)
    empty, missing = max(0, offsets - sent.count), max(0, sent.count - offsets)
    if empty:
        why.append(f"{empty:,} offsets have no record that is counted as sent: {_EMPTY}.")
    if missing:
        why.append(
            f"{missing:,} records were counted as sent and have no offset: not all were sent, or not all are known."
        )
    of_sent = Bounds(sent.count - missing, sent.count + empty)
    if not counted.has_positions:
        return of_sent, Bounds(), Bounds(), empty
    if before:
        why.append(f"{before:,} offsets are before the first one that was processed.")
    waiting = sum(one.in_flight for one in partitions)
    lost = Bounds(max(0, before - empty), before + missing)
    return of_sent, lost, Bounds(max(0, waiting - empty), waiting), empty


_EMPTY = "of transactions, other producers, compacted, or not reported by a killed one"


def _of_counts(counted: Counted, empty: int | None, *, commits_first: bool, why: list[str]) -> tuple[Bounds, int]:
    """Return how many records were counted twice, and how many at least were passed over without being counted.

    `empty` offsets may have no record. If that is not known, each is taken to have one, unless the counts disprove it.
    """
    surplus, at_most = counted.surplus, max(0, counted.surplus + (empty or 0))
    if not counted.has_positions:
        why.append("The positions of what was processed are not known: count with ConsumerProgress.")
        return Bounds(), 0
    if counted.overlap:
        why.append("Metrics with different tags have the same offsets: if these are different consumers, choose a tag.")
        return Bounds(max(0, surplus)), 0
    if not commits_first and surplus >= -(empty or 0):
        return Bounds(max(0, surplus), at_most), 0
    why.append(_EARLY if commits_first or empty is not None else _EARLY_OR_EMPTY)
    return Bounds(max(0, surplus)), 0 if empty is None else max(0, -surplus - empty)


_EARLY = "Offsets were committed before their records were counted: what a kill leaves out is lost."
_EARLY_OR_EMPTY = (
    "Fewer records were counted than the positions cover: offsets have no record (transactions, compaction), or were "
    "committed before their records were counted."
)


def _covers(taken: Counted, counted: Counted) -> bool:
    """Return whether everything that was counted was taken before, as far as that can be seen."""
    starts = {place: start for place, (start, _) in taken.ranges.items()}
    return taken.count >= counted.count and all(
        starts.get(place, start + 1) <= start for place, (start, _) in counted.ranges.items()
    )


def _partitions(sides: Sequence[Counted], counted: Counted) -> list[OfPartition]:
    """Return the offsets of each partition. What was taken or counted was sent."""
    found = []
    for place in sorted({place for side in sides for place in side.ranges}, key=lambda one: (one[0], len(one[1]), one)):
        known = [side.ranges[place] for side in sides if place in side.ranges]
        start, end = min(one.start for one in known), max(one.end for one in known)
        found.append(OfPartition(place, Range(start, end), counted.ranges.get(place, Range(start, start))))
    return found


def _balanced(left: list[Bounds], right: list[Bounds]) -> tuple[list[Bounds], list[Bounds]]:
    """Return the bounds of numbers that add up to the same on both sides, as far as each limits the others."""
    return _limited(left, right), _limited(right, left)


def _limited(side: list[Bounds], other: list[Bounds]) -> list[Bounds]:
    whole = total(other)
    limited = []
    for place, one in enumerate(side):
        rest = total(side[:place] + side[place + 1 :])
        at_least = one.at_least if rest.at_most is None else max(one.at_least, whole.at_least - rest.at_most)
        limits = (one.at_most, None if whole.at_most is None else whole.at_most - rest.at_least)
        highest = [limit for limit in limits if limit is not None]
        limited.append(Bounds(at_least, max(at_least, min(highest)) if highest else None))
    return limited


def total(bounds: Sequence[Bounds]) -> Bounds:
    """Return the bounds of the sum of numbers."""
    highest = [one.at_most for one in bounds if one.at_most is not None]
    return Bounds(sum(one.at_least for one in bounds), sum(highest) if len(highest) == len(bounds) else None)


def compare_offsets(offsets: Iterable[tuple[Place, Range, int]]) -> Comparison:
    """Compare by offsets alone: of each partition those that the topic has, and the one that is committed.

    Offsets below the first one of the topic, which were deleted before they were committed, are lost.
    """
    partitions = tuple(
        OfPartition(place, Range(min(start, committed), end), Range(start, min(max(start, committed), end)))
        for place, (start, end), committed in offsets
    )
    lost, in_flight = sum(one.before for one in partitions), sum(one.in_flight for one in partitions)
    sent, processed = sum(one.known.size for one in partitions), sum(one.processed.size for one in partitions)
    return Comparison(
        sent=Bounds(sent, sent),
        counted=Bounds(processed, processed),
        lost=Bounds(lost, lost),
        in_flight=Bounds(in_flight, in_flight),
        twice=Bounds(),
        processed_twice=Bounds(),
        partitions=partitions,
        why=(_OFFSETS,),
    )


_OFFSETS = (
    "These are offsets, not records: transactions and compaction leave some without a record. Offsets say nothing of "
    "records that were processed twice."
)
