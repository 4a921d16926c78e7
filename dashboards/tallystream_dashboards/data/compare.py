"""What producers sent against what consumers processed: lost, in flight and counted twice, each within bounds. Pure.

All numbers are of records, and they add up: sent + twice = counted + lost + in flight. A number is known exactly, or
lies between two bounds. Some bounds rest on what cannot be seen; `why` then has a sentence that says on what.

- A record that was sent has an offset in one of the ranges. So offsets without a counted record (of transactions, of
  other producers, of a killed one that did not report) are what widens the bounds. If it is not known at which offsets
  records were sent, the upper bounds are those if every offset has one.
- Consumers commit what they have counted and reported. So between the first and the last offset that were processed,
  each was counted. This is not used with `commits_first`, nor if the counts disprove it.
- Every record that was processed was taken before. So records that were taken twice are the most that were processed
  twice, and those that were taken and not counted the most of which it was not counted (docs/metrics.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tallystream_dashboards import formatting
from tallystream_dashboards.data.bounds import Bounds, balanced

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


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
        return self.again - self.overlap

    @property
    def again(self) -> int:
        """The same if metrics with different tags count the same records."""
        return self.count - sum(one.size for one in self.ranges.values())


class Died(NamedTuple):
    """An instance, the last report of a life of it, epoch ms, and how many records that life took and did not count.

    Of a producer nobody knows how many it sent and did not report.
    """

    instance: str
    at_ms: int
    unreported: int = 0


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
    def is_unsure(self) -> bool:
        """Whether more may have been processed twice than were counted twice."""
        return self.processed_twice.most is not None and self.processed_twice.most > self.twice.at_least

    @property
    def is_bad(self) -> bool:
        """Whether records were certainly lost or processed twice."""
        return bool(self.lost.at_least or self.twice.at_least)


def compare(
    sent: Counted | None,
    counted: Counted,
    *,
    taken: Counted | None = None,
    offsets: Mapping[Place, Range] | None = None,
    uncommitted: int | None = None,
    commits_first: bool = False,
    died: Collection[Died] = (),
    died_sending: Collection[Died] = (),
) -> Comparison:
    """Compare what was `sent` (None: unknown) with what was `counted` as processed, and `taken` before the work.

    `offsets` are those that the partitions have, and `uncommitted` is how many of them the consumers have not
    committed, if that is known. `commits_first` says that consumers may commit offsets that they never count. `died`
    are the lives that took records and ended without counting them, and `died_sending` those of producers that ended
    without a last report, as far as they are known.
    """
    why: list[str] = []
    taken = taken if taken is not None and _covers(taken, counted) else None
    partitions = _partitions([one for one in (sent, counted, taken) if one is not None], counted)
    senders = sorted({one.instance for one in died_sending})
    of_sent, lost, in_flight, twice = _of_counts(sent, counted, partitions, why, senders, commits_first=commits_first)
    granted = twice.granted
    empty = max(0, sum(one.known.size for one in partitions) - sent.count) if sent is not None and sent.ranges else 0
    if sent is not None and sent.ranges:
        seen = _up_to_end(partitions, offsets or {})
        beyond = sum(one.known.size for one in seen) - sum(one.known.size for one in partitions)
        of_sent, in_flight, partitions = _higher(of_sent, beyond), _higher(in_flight, beyond), seen
        if not offsets:
            why.append(f"Sent and in flight are as far as producers have reported: {_who_died(senders)}.")
        elif beyond:
            why.append(
                f"{formatting.counted(beyond, 'offset', 'is', 'are')} after the last one that is counted as sent: "
                f"{_unsent(beyond, senders)}."
            )
    if uncommitted is not None and in_flight.at_most is None:
        in_flight = Bounds(0, uncommitted)
        why.append(_COMMITTED)
    counts = Bounds(counted.count, counted.count)
    for _ in range(2):
        (of_sent, twice), (counts, lost, in_flight) = balanced([of_sent, twice], [counts, lost, in_flight])
    if granted is not None and twice.at_most is None:
        twice = Bounds(twice.at_least, None, max(twice.at_least, granted))
    processed_twice = Bounds(twice.at_least)
    if taken is None:
        why.append("What was taken before the work is not known, so neither what killed processes worked on.")
    elif twice.most is not None:
        why.append(_TAKES)
        unfinished = taken.count - counted.count
        most = max(twice.at_least, min(unfinished + twice.most, taken.again + empty))
        known, granted = (None, most) if twice.at_most is None else (most, None)
        processed_twice = Bounds(twice.at_least, known, granted)
        if most > twice.at_least:
            why.append(_unfinished(unfinished, died))
    return Comparison(
        sent=of_sent,
        counted=counts,
        lost=lost,
        in_flight=in_flight,
        twice=twice,
        processed_twice=processed_twice,
        partitions=tuple(partitions),
        why=tuple(why),
    )


def _of_counts(
    sent: Counted | None,
    counted: Counted,
    partitions: Sequence[OfPartition],
    why: list[str],
    senders: Sequence[str],
    *,
    commits_first: bool,
) -> tuple[Bounds, Bounds, Bounds, Bounds]:
    """Return what was sent, lost, in flight and counted twice, as far as each can be told without the others."""
    unknown, surplus = Bounds(), counted.surplus
    of_sent = Bounds(0 if sent is None else sent.count)
    if not counted.has_positions:
        why.append("The positions of what was processed are not known: count with ConsumerProgress.")
        return of_sent, unknown, unknown, unknown
    if counted.overlap:
        why.append("Metrics with different tags have the same offsets: if these are different consumers, choose a tag.")
        return of_sent, unknown, unknown, Bounds(max(0, surplus))
    why += [_POSITIONS, _EARLY if commits_first else _PASSED]
    if sent is None or not counted.topics <= sent.topics:
        if sent is not None:
            why.append("The offsets of what was sent are not known.")
        if surplus < 0:
            why.append(_FEWER)
        return (
            of_sent,
            unknown,
            unknown,
            Bounds(max(0, surplus), None, None if commits_first or surplus < 0 else surplus),
        )
    return _of_offsets(sent, surplus, partitions, why, senders, commits_first=commits_first)


def _of_offsets(
    sent: Counted,
    surplus: int,
    partitions: Sequence[OfPartition],
    why: list[str],
    senders: Sequence[str],
    *,
    commits_first: bool,
) -> tuple[Bounds, Bounds, Bounds, Bounds]:
    offsets, before = sum(one.known.size for one in partitions), sum(one.before for one in partitions)
    waiting = sum(one.in_flight for one in partitions)
    empty, missing = max(0, offsets - sent.count), max(0, sent.count - offsets)
    skipped = max(0, -surplus - empty - missing)
    if empty:
        have = formatting.counted(empty, "offset", "has", "have")
        why.append(f"{have} no record that is counted as sent: {_unsent(empty, senders)}.")
    if missing:
        why.append(
            f"{formatting.counted(missing, 'record', 'was', 'were')} counted as sent without an offset: {_MISSING}."
        )
    if before:
        why.append(f"{formatting.counted(before, 'offset', 'is', 'are')} before the first one that was processed.")
    if skipped:
        why.append(f"{formatting.counted(skipped, 'record', 'was', 'were')} sent and not counted: {_SKIPPED}.")
    # Without positions, other records than those may have been counted: those before, and in partitions without any.
    elsewhere = before + sum(one.known.size for one in partitions if not one.processed.size)
    lost = Bounds(max(0, before - empty - max(0, surplus)) + skipped, before)
    in_flight = Bounds(max(0, waiting - empty - max(0, surplus)), waiting)
    twice = Bounds(max(0, surplus - elsewhere - missing), max(0, surplus + empty))
    if commits_first or skipped or missing:
        lost, twice = Bounds(lost.at_least), Bounds(twice.at_least)
    return (
        Bounds(sent.count - missing, sent.count + empty),
        lost,
        Bounds(in_flight.at_least) if missing else in_flight,
        twice,
    )


_POSITIONS = "Taken for granted: all count with positions from their first record on, and no topic was created again."
_PASSED = "Taken for granted: offsets are committed after the report, and none is passed over (retention, seek)."
_TAKES = "Taken for granted: all count what they take, too, and report it before the work."
_EARLY = "Offsets were committed before their records were counted, or passed over: what that leaves out is lost."
_FEWER = (
    "Fewer records were counted than the positions cover: offsets have no record (transactions, compaction), or were "
    "committed before their records were counted."
)
_COMMITTED = "Taken for granted: what was committed is counted and reported."
_EMPTY = "of transactions, other producers, compacted, or not reported"
_MISSING = "not all were sent, or not by producers with positions, or the topic was created again"
_SKIPPED = "committed before, of a transaction that was aborted, or processed without a report"


def _unsent(number: int, senders: Sequence[str]) -> str:
    return f"{_named(senders)} died with at most {number:,} unreported; or {_EMPTY}" if senders else _EMPTY


def _who_died(senders: Sequence[str]) -> str:
    return f"{_named(senders)} died, and may have sent more" if senders else "a killed one may have sent more"


def _named(instances: Sequence[str]) -> str:
    return f"instance{'s' if len(instances) > 1 else ''} {', '.join(instances)}"


def _unfinished(number: int, died: Collection[Died]) -> str:
    named = [f"instance {one.instance} died with at most {one.unreported:,} unreported" for one in died]
    if sum(one.unreported for one in died) < number:
        named.append(("the others " if named else "") + "in work, or by a process that was killed")
    return f"{formatting.counted(number, 'record', 'was', 'were')} taken and not counted: {'; '.join(named)}."


def _higher(one: Bounds, by: int) -> Bounds:
    return Bounds(one.at_least, None if one.at_most is None else one.at_most + by)


def _up_to_end(partitions: Sequence[OfPartition], offsets: Mapping[Place, Range]) -> list[OfPartition]:
    """Return the partitions with all offsets that are known to exist after the others."""
    known = {one.place: one for one in partitions}
    topics = {place.topic for place in known}
    for place, there in offsets.items():
        if place.topic in topics:
            one = known.get(place, OfPartition(place, there, Range(there.start, there.start)))
            known[place] = one._replace(known=Range(one.known.start, max(one.known.end, there.end)))
    return sorted(known.values(), key=_order)


def _covers(taken: Counted, counted: Counted) -> bool:
    """Return whether everything that was counted was taken before, as far as that can be seen."""
    return taken.count >= counted.count and all(
        place in taken.ranges and taken.ranges[place].start <= start and end <= taken.ranges[place].end
        for place, (start, end) in counted.ranges.items()
    )


def _partitions(sides: Sequence[Counted], counted: Counted) -> list[OfPartition]:
    """Return the offsets of each partition. What was taken or counted was sent."""
    found = []
    for place in {place for side in sides for place in side.ranges}:
        known = [side.ranges[place] for side in sides if place in side.ranges]
        start, end = min(one.start for one in known), max(one.end for one in known)
        found.append(OfPartition(place, Range(start, end), counted.ranges.get(place, Range(start, start))))
    return sorted(found, key=_order)


def _order(one: OfPartition) -> tuple[str, int, str]:
    return one.place.topic, len(one.place.partition), one.place.partition


def compare_offsets(offsets: Iterable[tuple[Place, Sequence[tuple[Range, int]]]]) -> Comparison:
    """Compare by offsets alone: those that each partition had over time, and the one that was committed.

    Offsets below the first one of the topic, which were deleted before they were committed, are lost. So are those that
    were so at an earlier time.
    """
    partitions = tuple(_of_history(place, history) for place, history in offsets)
    lost, in_flight = sum(one.before for one in partitions), sum(one.in_flight for one in partitions)
    sent, processed = sum(one.known.size for one in partitions), sum(one.processed.size for one in partitions)
    return Comparison(
        sent=Bounds(sent, sent),
        counted=Bounds(processed, processed),
        lost=Bounds(lost, None),
        in_flight=Bounds(in_flight, in_flight),
        twice=Bounds(),
        processed_twice=Bounds(),
        partitions=partitions,
        why=(_OFFSETS,),
    )


def _of_history(place: Place, history: Sequence[tuple[Range, int]]) -> OfPartition:
    (start, end), committed = history[-1]
    processed = min(max(start, committed), end)
    first = min(processed, *(min(there.start, at) for there, at in history))
    deleted = max(0, *(there.start - at for there, at in history))
    return OfPartition(place, Range(first, end), Range(min(first + deleted, processed), processed))


_OFFSETS = (
    "These are offsets, not records: transactions and compaction leave some without a record. Those that are committed "
    "count as processed, unless they were seen to be deleted before. Nothing is known of records processed twice."
)
