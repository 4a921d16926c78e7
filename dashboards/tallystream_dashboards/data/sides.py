"""The counters and positions to compare, over time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tallystream_dashboards import formatting
from tallystream_dashboards.data.compare import Comparison, Counted, Died, Place, Range, compare, compare_offsets
from tallystream_dashboards.data.stored import ALL, GroupOffsets, Stored, place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import tzinfo

    from tallystream_dashboards.data.lines import Line
    from tallystream_dashboards.data.sums import Metric

STILL_MS = 10_000
"""How long nothing may change for it to stand still. That is longer than the usual reporting interval."""

NUMBERS = {
    "sent": "sent",
    "counted": "counted as processed",
    "lost": "lost",
    "in_flight": "in flight",
    "twice": "counted twice",
    "processed_twice": "processed twice",
}
"""What the numbers of a comparison are called."""


def positions_of(counter: str) -> str:
    """Return the name of the positions that are set together with a counter, as ConsumerProgress names them."""
    return f"{counter}.position"


def taken_of(counter: str) -> str:
    """Return the name of the counter of what was taken before the work, as ConsumerProgress names it."""
    return f"{counter}.taken"


class CounterKey(NamedTuple):
    """The counters with one name of an app. As text it is APP/NAME."""

    app: str
    name: str

    def __str__(self) -> str:
        return f"{self.app}/{self.name}"

    @property
    def taken(self) -> CounterKey:
        """What was taken before the work."""
        return CounterKey(self.app, taken_of(self.name))


@dataclass(frozen=True, slots=True)
class Side:
    """The counters with one name, of one app or of all, and their positions."""

    counters: tuple[Metric, ...]
    positions: tuple[Metric, ...]

    def at(self, at_ms: int) -> Counted:
        """Return what was counted at a time, and between which offsets."""
        ranges: dict[Place, Range] = {}
        sizes = 0
        for one in self.positions:
            start, end = one.at("start", at_ms), one.at("position", at_ms)
            if start is not None and end is not None:
                low, high = ranges.get(place_of(one), (start, end))
                ranges[place_of(one)] = Range(int(min(low, start)), int(max(high, end)))
                sizes += int(end - start)
        overlap = max(0, sizes - sum(one.size for one in ranges.values()))
        return Counted(sum(int(one.at("count", at_ms) or 0) for one in self.counters), ranges, overlap)

    def lines(self) -> Iterator[Line]:
        """Yield what changes."""
        yield from (one.value for one in self.counters)
        yield from (one.line("position") for one in self.positions)


@dataclass(frozen=True, slots=True)
class Compared:
    """What is compared, over time. `group` are the offsets of a consumer group, all there is if nothing was counted.

    `stored` tells up to which moment. `died` are lives that took records and did not count them, and `died_sending`
    those of producers that ended without a last report.
    """

    sent: Side | None
    counted: Side | None
    taken: Side | None
    group: tuple[GroupOffsets, ...]
    commits_first: bool = False
    stored: Stored = ALL
    died: tuple[Died, ...] = ()
    died_sending: tuple[Died, ...] = ()

    def at(self, at_ms: int) -> Comparison:
        """Return the comparison at a time."""
        if self.counted is None:
            found = compare_offsets([(one.place, history) for one in self.group if (history := one.until(at_ms))])
        else:
            fresh = {
                one.place: newest[0]
                for one in self.group
                if one.read_ms(at_ms) is not None and (newest := one.at(at_ms)) is not None
            }
            passed_over = any(committed < there.start for one in self.group for there, committed in one.until(at_ms))
            found = compare(
                None if self.sent is None else self.sent.at(at_ms),
                self.counted.at(at_ms),
                taken=None if self.taken is None else self.taken.at(at_ms),
                offsets=fresh,
                uncommitted=self._uncommitted(at_ms),
                commits_first=self.commits_first or passed_over,
                died=[one for one in self.died if one.at_ms <= at_ms],
                died_sending=[one for one in self.died_sending if one.at_ms <= at_ms],
            )
        return replace(found, why=(*found.why, *self.stored.why))

    def _uncommitted(self, at_ms: int) -> int | None:
        """Return how many offsets are not committed at most; None if that is not known of each partition.

        What is committed is reported a moment later. So the offsets are of `STILL_MS` before, and what was sent since
        then is not committed.
        """
        times = [one.read_ms(at_ms - STILL_MS) for one in self.group]
        known = {one.place: one.at(at_ms - STILL_MS) for one in self.group}
        if not times or None in times or None in known.values():
            return None
        since_ms = min(filter(None, times))
        grown = 0 if self.sent is None else self.sent.at(at_ms).count - self.sent.at(since_ms).count
        ends = self._ends(at_ms) if self.sent is None else {}
        offsets = [(place, *found) for place, found in known.items() if found is not None]
        return grown + sum(max(0, max(there.end, ends.get(place, 0)) - at) for place, there, at in offsets)

    def _ends(self, at_ms: int) -> dict[Place, int]:
        """Return the highest end of each partition that is known: that of its offsets, or of what was read."""
        ends = {one.place: int(one.end.at(at_ms) or 0) for one in self.group}
        for side in (self.counted, self.taken):
            for place, there in side.at(at_ms).ranges.items() if side is not None else ():
                ends[place] = max(ends.get(place, 0), there.end)
        return ends

    def still_ms(self, at_ms: int) -> int | None:
        """Return when it last changed before it stood still, at `at_ms` or earlier; None if it did not."""
        lines = [line for side in (self.sent, self.counted, self.taken) if side is not None for line in side.lines()]
        lines += [line for one in self.group for line in (one.end, one.committed)]
        times = sorted({time for line in lines for time in _changes(line) if time <= at_ms})
        return next((one for one, later in reversed([*pairwise([*times, at_ms])]) if later - one >= STILL_MS), None)

    def still_text(self, at_ms: int, zone: tzinfo = UTC) -> str:
        """Return a sentence about the last moment at which it stood still."""
        still_ms = self.still_ms(at_ms)
        if still_ms is None:
            return "It did not stand still in this period."
        still, time = self.at(still_ms), formatting.clock(still_ms, zone, now_ms=at_ms)
        if still == self.at(at_ms):
            return f"Nothing has changed since {time}."
        numbers = (f"{NUMBERS[name]} {getattr(still, name).at_least:,}" for name in ("lost", "in_flight", "twice"))
        return f"It last stood still at {time}: {', '.join(numbers)}."


def countable(sides: Collection[CounterKey]) -> list[CounterKey]:
    """Return the counters that are no bound of another: without what was taken before the work."""
    bounds = {key.taken for key in sides}
    return sorted(key for key in sides if key not in bounds)


def sender_to(sides: Mapping[CounterKey, Side], counted: CounterKey, at_ms: int) -> CounterKey | None:
    """Return the counter of what was sent to the topics of a consumer; None unless exactly one can be it.

    A consumer is known by what it takes. A producer takes nothing, and each of its records has an offset of its own.
    """
    if not {counted, counted.taken} <= sides.keys():
        return None
    topics = sides[counted].at(at_ms).topics
    found = []
    for key in countable(sides):
        sent = sides[key].at(at_ms)
        if key.taken not in sides and sent.topics == topics and sent.surplus <= 0 and not sent.overlap:
            found.append(key)
    return found[0] if len(found) == 1 else None


class OfConsumer(NamedTuple):
    """What became of the records of a consumer, and the counter of what was sent to it, if that is known."""

    sender: CounterKey | None
    compared: Comparison


def compare_all(
    sides: Mapping[CounterKey, Side], at_ms: int, stored: Stored, *, commits_first: bool = False
) -> dict[CounterKey, OfConsumer]:
    """Compare each counter of what was processed with what was sent to its topics, if that is known."""
    senders = {key: sender_to(sides, key, at_ms) for key in countable(sides)}
    found = {}
    for key, sender in senders.items():
        if key not in senders.values():
            sent, taken = sides[sender] if sender else None, sides.get(key.taken)
            compared = Compared(sent, sides[key], taken, (), commits_first, stored)
            found[key] = OfConsumer(sender, compared.at(at_ms))
    return found


def _changes(line: Line) -> Iterator[int]:
    before = None
    for time, value in zip(line.times_ms, line.values, strict=True):
        if value != before:
            yield time
        before = value
