"""Up to when the store has everything that was published: of that moment its sums can be compared.

The counter and the positions of one step may reach the store one after the other. A round of the lag collector asks for
the committed offsets first, and then for the ends. So what the aggregator had committed in a round is in the store as
soon as the shipper has committed the ends of `metrics-agg` of that round; and what it had committed has everything that
was published before a round whose ends of `metrics` are not after it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.health.internal_metrics import APP as OWN_APP
from tallystream_aggregator.health.internal_metrics import BY_NAME
from tallystream_dashboards import formatting
from tallystream_dashboards.data.compare import Place, Range
from tallystream_dashboards.data.groups import AGGREGATOR, SHIPPER, prefix, role
from tallystream_dashboards.data.sums import metrics
from tallystream_dashboards.lag.reader import read_groups
from tallystream_dashboards.lag.samples import MAX_GAP_MS
from tallystream_dashboards.lag.storage import LAG, ROUNDS, SLOT_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import tzinfo

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.lines import Line
    from tallystream_dashboards.data.sums import Metric

LIMIT_MS = 150_000
"""How old the numbers may be, in ms. The longest interval of the collector is 60 s."""
LONGEST_MS = 3_600_000
"""How far back the moment is looked for, in ms."""
LATER_MS = 4 * SLOT_MS
"""The time after a moment of the past in which it may reach the store. Of old lag one round in a slot is kept."""

_POSITION = BY_NAME["tallystream.offset"].name
_GRANTED = "Taken for granted: all is in the store. No lag of {} is known."


@dataclass(frozen=True, slots=True)
class Stored:
    """The store has all that was published until `until_ms` (epoch ms). `behind` are the groups that have lag.

    None: that is not known of the last hour. Without `behind` no lag is known, and all is taken to be in the store.
    `unknown` are the roles of which no lag is known: they are taken to have none.
    """

    until_ms: int | None = None
    behind: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def as_of(self, at_ms: int) -> int | None:
        """Return the last moment up to `at_ms` of which the sums can be compared; None if none is known."""
        if self.until_ms is None:
            return None if self.behind else at_ms
        return min(at_ms, self.until_ms)

    def is_late(self, at_ms: int) -> bool:
        """Whether that moment is too long ago to tell how it is at `at_ms`."""
        as_of = self.as_of(at_ms)
        return as_of is None or at_ms - as_of > LIMIT_MS

    @property
    def why(self) -> tuple[str, ...]:
        """What the numbers of that moment rest on."""
        names = " and ".join(f"the {name}" for name in self.unknown)
        return (_GRANTED.format(names),) if names else ()

    def text(self, at_ms: int, zone: tzinfo = UTC) -> str:
        """Return a sentence about that moment; empty if it is `at_ms`."""
        as_of, verb = self.as_of(at_ms), "are" if len(self.behind) > 1 else "is"
        behind = f"{' and '.join(self.behind)} {verb} behind"
        if as_of is None:
            return f"Nothing can be told: {behind} in all that is known of the last hour."
        late = f": {behind}" if self.is_late(at_ms) and self.behind else ""
        return "" if as_of == at_ms else f"As of {formatting.clock(as_of, zone, now_ms=at_ms)}{late}."


ALL = Stored(unknown=(AGGREGATOR, SHIPPER))
"""All is taken to be in the store."""


def read_stored(reader: PointReader, at_ms: int, *, clock: Callable[[], float] = time.time) -> Stored:
    """Return up to when the store has everything, by the lag of the aggregators and the shippers around `at_ms`.

    `clock` returns epoch seconds. Rounds of the future are none: the clock of the collector was set back.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    groups = [one.group for one in read_groups(reader, at_ms=at_ms, fields=("gone",)) if not one.gone]
    own = [name for name in groups if role(name) in (AGGREGATOR, SHIPPER)]
    if not own:
        return ALL
    topics = _topics(reader, at_ms) if len({prefix(name) for name in own}) > 1 else set()
    for back_ms in (LIMIT_MS, LONGEST_MS):
        start_ms, end_ms = at_ms - back_ms, min(at_ms + LATER_MS, round(clock() * 1000) + 1)
        rounds = [
            _Round(ts_ms, ts_ms - ceil(min(float(took_s), LONGEST_MS) * 1000) - 1)
            for one in reader.read(ROUNDS, ("took_s",), start_ms=start_ms, end_ms=end_ms)
            for ts_ms, took_s in zip(one.times_ms, one.values, strict=True)
        ]
        if not rounds or at_ms - rounds[-1].ts_ms > MAX_GAP_MS:
            return ALL
        partitions = [
            one
            for name in own
            for one in read_group_offsets(reader, name, start_ms, end_ms)
            if one.is_there(rounds[-1])
        ]
        if topics:
            partitions = _of_store(partitions, topics)
        if not partitions:
            return ALL
        until_ms = _until_ms(rounds, partitions)
        if until_ms is not None:
            break
    behind = {one.group for one in partitions if not one.has_consumed(rounds[-1], by=rounds[-1])}
    known = {role(one.group) for one in partitions}
    unknown = tuple(name for name in (AGGREGATOR, SHIPPER) if name not in known)
    return Stored(until_ms, tuple(sorted(behind)), unknown)


class _Round(NamedTuple):
    """A round of the collector: when it had the ends, and a time before it asked."""

    ts_ms: int
    began_ms: int


class GroupOffsets(NamedTuple):
    """The offsets of a group in a partition over time. They are known where `stale` has no later value."""

    group: str
    place: Place
    start: Line
    end: Line
    committed: Line
    stale: Line

    def read_ms(self, at_ms: int) -> int | None:
        """Return when they were read, at a time or before; None if that is too long ago."""
        index = bisect_right(self.end.times_ms, at_ms)
        return self.end.times_ms[index - 1] if index and at_ms - self.end.times_ms[index - 1] <= MAX_GAP_MS else None

    def at(self, at_ms: int) -> tuple[Range, int] | None:
        """Return the offsets that the partition has, and the committed one. What was never committed is not processed.

        What was committed before the topic was created again is not, either.
        """
        start, end, committed = (line.at(at_ms) for line in (self.start, self.end, self.committed))
        if start is None or end is None:
            return None
        return Range(int(start), int(end)), int(start if committed is None or committed > end else committed)

    def until(self, at_ms: int) -> list[tuple[Range, int]]:
        """Return the same of all times up to one."""
        times = [time for time in self.end.times_ms if time <= at_ms]
        return [found for time in times if (found := self.at(time)) is not None]

    def is_there(self, newest: _Round) -> bool:
        """Return whether the group still has it in the newest round."""
        return any(newest.ts_ms - one.times_ms[-1] <= MAX_GAP_MS for one in (self.end, self.stale) if one.times_ms)

    def has_consumed(self, end: _Round, *, by: _Round) -> bool:
        """Return whether the group is known to have committed the end of one round in another one or before."""
        read_ms = self.read_ms(end.ts_ms)
        stale_at = bisect_right(self.stale.times_ms, end.ts_ms) - 1
        if read_ms is None or (stale_at >= 0 and self.stale.times_ms[stale_at] > read_ms):
            return False
        committed = self.committed.at(by.ts_ms)
        committed = self.start.at(by.ts_ms) if committed is None else committed
        return committed is not None and (self.end.at(read_ms) or 0) <= committed


def place_of(metric: Metric) -> Place:
    """Return the partition that a metric is of, by its tags."""
    tags = dict(metric.tags)
    return Place(tags.get("topic", ""), tags.get("partition", ""))


def read_group_offsets(
    reader: PointReader, group: str, start_ms: int, end_ms: int, *, last_before: bool = False
) -> list[GroupOffsets]:
    """Return the offsets of a group in a period; with `last_before` also the last ones before it.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    fields, tags = ("start", "end", "committed", "stale"), {"group": group}
    series = reader.read(LAG, fields, start_ms=start_ms, end_ms=end_ms, tags=tags, last_before=last_before)
    return [GroupOffsets(group, place_of(one), *(one.line(field) for field in fields)) for one in metrics(series)]


def _topics(reader: PointReader, at_ms: int) -> set[str]:
    """Return which topics the aggregators read whose own metrics the store has."""
    series = reader.read(_POSITION, ("max",), start_ms=at_ms, end_ms=at_ms + 1, tags={"app": OWN_APP}, last_before=True)
    return {one.tags.get("topic", "") for one in series if at_ms - one.times_ms[-1] <= LONGEST_MS}


def _of_store(partitions: Collection[GroupOffsets], topics: Collection[str]) -> list[GroupOffsets]:
    """Leave out other systems on the broker: those whose aggregator reads none of the topics."""
    summed = {one.group for one in partitions if role(one.group) == AGGREGATOR}
    others = {prefix(name) for name in summed - {one.group for one in partitions if one.place.topic in topics}}
    return [one for one in partitions if prefix(one.group) not in others]


def _until_ms(rounds: Sequence[_Round], partitions: Iterable[GroupOffsets]) -> int | None:
    shipped = [one for one in partitions if role(one.group) == SHIPPER]
    summed = [one for one in partitions if role(one.group) == AGGREGATOR]
    newest = rounds[-1]
    in_store = next((at for at in reversed(rounds) if all(one.has_consumed(at, by=newest) for one in shipped)), None)
    if in_store is None:
        return None
    earlier = (at for at in reversed(rounds) if at.ts_ms <= in_store.ts_ms)
    return next((at.began_ms for at in earlier if all(one.has_consumed(at, by=in_store) for one in summed)), None)
