"""Reads from the store what is compared, and finds the moment at which it stood still."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from tallystream_aggregator.shipping.points import is_sum
from tallystream_dashboards.data.compare import Comparison, Counted, Place, Range, compare, compare_offsets
from tallystream_dashboards.data.duplicates import positions_of, taken_of
from tallystream_dashboards.data.groups import ROLES, read_groups_now, role
from tallystream_dashboards.data.sums import metrics
from tallystream_dashboards.lag.samples import MAX_GAP_MS
from tallystream_dashboards.lag.storage import LAG

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.lines import Line, Period
    from tallystream_dashboards.data.sums import Metric

READS = 5
"""How often everything is read, at most, if the shipper writes meanwhile."""
_UNKNOWN = "Taken for granted: all is in the store. No lag of the aggregator and the shipper is known."
STILL_MS = 10_000
"""How long nothing may change for it to stand still. That is longer than the usual reporting interval."""


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
            start, end = one.line("start").at(at_ms), one.line("position").at(at_ms)
            if start is not None and end is not None:
                low, high = ranges.get(_place(one), (start, end))
                ranges[_place(one)] = Range(int(min(low, start)), int(max(high, end)))
                sizes += int(end - start)
        overlap = max(0, sizes - sum(one.size for one in ranges.values()))
        return Counted(sum(int(one.value.at(at_ms) or 0) for one in self.counters), ranges, overlap)

    def lines(self) -> Iterator[Line]:
        """Yield what changes."""
        yield from (one.value for one in self.counters)
        yield from (one.line("position") for one in self.positions)


@dataclass(frozen=True, slots=True)
class Compared:
    """What is compared, over time. `group` are the offsets of a consumer group, all there is if nothing was counted.

    `behind` are the groups of the aggregator and the shipper that have lag, so that the sums may not be of one moment.
    None: that is not known.
    """

    sent: Side | None
    counted: Side | None
    taken: Side | None
    group: tuple[Metric, ...]
    commits_first: bool = False
    behind: tuple[str, ...] | None = ()

    def at(self, at_ms: int) -> Comparison:
        """Return the comparison at a time."""
        if self.counted is None:
            found = compare_offsets([(_place(one), history) for one in self.group if (history := _history(one, at_ms))])
        else:
            fresh = {
                _place(one): newest[0]
                for one in self.group
                if _read_ms(one, at_ms) is not None and (newest := _offsets(one, at_ms)) is not None
            }
            passed_over = any(
                committed < there.start for one in self.group for there, committed in _history(one, at_ms)
            )
            found = compare(
                None if self.sent is None else self.sent.at(at_ms),
                self.counted.at(at_ms),
                taken=None if self.taken is None else self.taken.at(at_ms),
                offsets=fresh,
                uncommitted=self._uncommitted(at_ms),
                commits_first=self.commits_first or passed_over,
            )
        if self.behind is None:
            return replace(found, why=(*found.why, _UNKNOWN))
        names = " and ".join(self.behind)
        return replace(found, why=(*found.why, f"Not all is in the store: {names} is behind.")) if names else found

    def _uncommitted(self, at_ms: int) -> int | None:
        """Return how many offsets are not committed at most; None if that is not known of each partition.

        What is committed is reported a moment later. So the offsets are of `STILL_MS` before, and what was sent since
        then is not committed.
        """
        times = [_read_ms(one, at_ms - STILL_MS) for one in self.group]
        known = [_offsets(one, at_ms - STILL_MS) for one in self.group]
        if not times or None in times or None in known:
            return None
        since_ms = min(filter(None, times))
        grown = 0 if self.sent is None else self.sent.at(at_ms).count - self.sent.at(since_ms).count
        return grown + sum(max(0, there.end - committed) for there, committed in filter(None, known))

    def still_ms(self, at_ms: int) -> int | None:
        """Return when it last changed before it stood still, at `at_ms` or earlier; None if it did not."""
        lines = [line for side in (self.sent, self.counted, self.taken) if side is not None for line in side.lines()]
        lines += [one.line(field) for one in self.group for field in ("end", "committed")]
        times = sorted({time for line in lines for time in _changes(line) if time <= at_ms})
        return next((one for one, later in reversed([*pairwise([*times, at_ms])]) if later - one >= STILL_MS), None)


def read_compared(
    reader: PointReader,
    sent: str | None,
    counted: str | None,
    group: str | None,
    period: Period,
    *,
    tags: Mapping[str, str] | None = None,
    commits_first: bool = False,
) -> Compared | None:
    """Return what is compared in a period; None if the store has none of one of the names.

    A name is that of a counter, of all apps, or APP/NAME; `tags` are tags of what was counted. If the store is written
    to meanwhile, it is read again, so that all numbers are of one moment.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    names = frozenset(reader.measurements())

    def side(name: str | None, tags: Mapping[str, str]) -> Side | None:
        return None if name is None else _side(reader, name, names, tags, period)

    # Before the sums: what had arrived by then is in them.
    behind = _behind(reader, period)

    def read() -> Compared | None:
        offsets = {"start", "end", "committed"}
        of_group = () if group is None else tuple(_read(reader, LAG, offsets, {"group": group}, period))
        # What was taken is read after what was counted, of which it is the bound.
        consumers = side(counted, tags or {}), side(counted and taken_of(counted), tags or {})
        found = Compared(side(sent, {}), *consumers, of_group, commits_first, behind)
        wanted = (sent, found.sent), (counted, found.counted), (group, found.group)
        return None if any(name is not None and not one for name, one in wanted) else found

    found = read()
    for _ in range(READS - 1):
        before, found = found, read()
        if before == found:
            break
    return found


def _behind(reader: PointReader, period: Period) -> tuple[str, ...] | None:
    groups = read_groups_now(reader, period)
    own = [one for one in groups.states if role(one.group) in ROLES.values() and not one.gone]
    if not own or groups.round_ms is None or period.end_ms - groups.round_ms > MAX_GAP_MS:
        return None
    return tuple(sorted(one.group for one in own if one.lag or one.uncommitted_records or one.stale))


def counters_with_positions(reader: PointReader, app: str | None, period: Period) -> list[str]:
    """Return APP/NAME of each counter that has positions, of one app or of all.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    names = frozenset(filter(is_sum, reader.measurements()))
    bounds = {taken_of(name) for name in names}
    found = {
        f"{one.app}/{name}"
        for name in names - bounds
        if positions_of(name) in names
        for one in _read(reader, name, {"count"}, {} if app is None else {"app": app}, period)
        if one.type == "counter"
    }
    return sorted(found)


def _side(
    reader: PointReader, text: str, names: Collection[str], tags: Mapping[str, str], period: Period
) -> Side | None:
    app, slash, name = text.partition("/")
    if text in names or not slash:
        name = text
    else:
        tags = {**tags, "app": app}
    counters = _read(reader, name, {"count"}, tags, period) if name in names else []
    of_position, fields = {**tags, "metric_type": "position"}, {"start", "position"}
    has_positions = counters and positions_of(name) in names
    positions = _read(reader, positions_of(name), fields, of_position, period) if has_positions else []
    return Side(tuple(counters), tuple(positions)) if counters else None


def _read(
    reader: PointReader, name: str, fields: Collection[str], tags: Mapping[str, str], period: Period
) -> list[Metric]:
    wanted = tuple(sorted(fields))
    series = reader.read(
        name, wanted, start_ms=period.start_ms, end_ms=period.until_ms, tags=dict(tags), last_before=True
    )
    return metrics(series)


def _place(metric: Metric) -> Place:
    tags = dict(metric.tags)
    return Place(tags.get("topic", ""), tags.get("partition", ""))


def _read_ms(metric: Metric, at_ms: int) -> int | None:
    """Return when the offsets of a partition were read, at a time or before; None if that is too long ago."""
    times = metric.line("end").times_ms
    index = bisect_right(times, at_ms)
    return times[index - 1] if index and at_ms - times[index - 1] <= MAX_GAP_MS else None


def _offsets(metric: Metric, at_ms: int) -> tuple[Range, int] | None:
    """Return the offsets that a partition has, and the committed one. What was never committed is not processed.

    What was committed before the topic was created again is not, either.
    """
    start, end = metric.line("start").at(at_ms), metric.line("end").at(at_ms)
    if start is None or end is None:
        return None
    committed = metric.line("committed").at(at_ms)
    return Range(int(start), int(end)), int(start if committed is None or committed > end else committed)


def _history(metric: Metric, at_ms: int) -> list[tuple[Range, int]]:
    """Return the same of all times up to one."""
    times = [time for time in metric.line("end").times_ms if time <= at_ms]
    return [found for time in times if (found := _offsets(metric, time)) is not None]


def _changes(line: Line) -> Iterator[int]:
    before = None
    for time, value in zip(line.times_ms, line.values, strict=True):
        if value != before:
            yield time
        before = value
