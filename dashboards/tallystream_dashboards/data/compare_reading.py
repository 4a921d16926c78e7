"""Reads from the store what is compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tallystream_aggregator.sinks.base import is_sum
from tallystream_dashboards.data.died import read_died, read_died_sending
from tallystream_dashboards.data.lines import Period
from tallystream_dashboards.data.sides import STILL_MS, Compared, CounterKey, Side, compare_all, positions_of, taken_of
from tallystream_dashboards.data.stored import Stored, read_group_offsets, read_stored
from tallystream_dashboards.data.sums import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.sides import OfConsumer
    from tallystream_dashboards.data.sums import Metric

Found = TypeVar("Found")

READS = 5
"""How often everything is read, at most, if the shipper writes meanwhile."""


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

    # Before the sums: what had arrived by then is in them. Offsets are of the round that read them.
    stored = Stored(period.end_ms) if counted is None else read_stored(reader, period.end_ms)
    as_of_ms = stored.as_of(period.end_ms)
    if as_of_ms is not None:  # that moment may be before the period
        period = period._replace(start_ms=min(period.start_ms, as_of_ms - STILL_MS))

    def read() -> Compared | None:
        start_ms, _, end_ms = period
        of_group = [] if group is None else read_group_offsets(reader, group, start_ms, end_ms, last_before=True)
        # What was taken is read after what was counted, of which it is the bound.
        consumers = side(counted, tags or {}), side(counted and taken_of(counted), tags or {})
        found = Compared(side(sent, {}), *consumers, tuple(of_group), commits_first, stored)
        wanted = (sent, found.sent), (counted, found.counted), (group, found.group)
        return None if any(name is not None and not one for name, one in wanted) else found

    found = _of_one_moment(read)
    if found is None or counted is None or as_of_ms is None:
        return found
    until = Period(period.start_ms, as_of_ms, as_of_ms + 1)
    if sent is not None:
        app, name = _app_and_name(sent, names)
        found = replace(found, died_sending=read_died_sending(reader, name, _tags(app, {}), until))
    if not found.at(as_of_ms).is_unsure:
        return found
    app, name = _app_and_name(counted, names)
    return replace(found, died=read_died(reader, name, taken_of(name), _tags(app, tags or {}), until))


def read_sides(reader: PointReader, app: str | None, period: Period) -> dict[CounterKey, Side]:
    """Return all counters that have positions, of one app or of all, at one moment.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    tags = {} if app is None else {"app": app}

    def read() -> dict[CounterKey, Side]:
        names = frozenset(filter(is_sum, reader.measurements()))
        found: dict[CounterKey, Side] = {}
        for name in sorted(names):
            if positions_of(name) in names:
                side = _read_side(reader, name, names, tags, period)
                for one in {one.app for one in side.positions}:
                    counters = tuple(own for own in side.counters if (own.app, own.type) == (one, "counter"))
                    if counters:
                        positions = tuple(position for position in side.positions if position.app == one)
                        found[CounterKey(one, name)] = Side(counters, positions)
        return found

    return _of_one_moment(read)


def read_consumers(reader: PointReader, at_ms: int) -> tuple[Stored, dict[CounterKey, OfConsumer]]:
    """Return what became of the records of each consumer up to `at_ms`, and of which moment that is.

    If no such moment is known, there are none.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    stored = read_stored(reader, at_ms)
    as_of_ms = stored.as_of(at_ms)
    if as_of_ms is None:
        return stored, {}
    sides = read_sides(reader, None, Period(as_of_ms, as_of_ms, as_of_ms + 1))
    return stored, compare_all(sides, as_of_ms, stored)


def _of_one_moment(read: Callable[[], Found]) -> Found:
    """Read again until nothing has been written meanwhile."""
    found = read()
    for _ in range(READS - 1):
        before, found = found, read()
        if before == found:
            break
    return found


def _side(
    reader: PointReader, text: str, names: Collection[str], tags: Mapping[str, str], period: Period
) -> Side | None:
    app, name = _app_and_name(text, names)
    side = _read_side(reader, name, names, _tags(app, tags), period)
    return side if side.counters else None


def _app_and_name(text: str, names: Collection[str]) -> tuple[str | None, str]:
    """Return the parts of APP/NAME. Both may contain slashes."""
    cuts = [at for at, letter in enumerate(text) if letter == "/" and text[at + 1 :] in names]
    return (text[: cuts[0]], text[cuts[0] + 1 :]) if cuts and text not in names else (None, text)


def _tags(app: str | None, tags: Mapping[str, str]) -> Mapping[str, str]:
    return tags if app is None else {**tags, "app": app}


def _read_side(reader: PointReader, name: str, names: Collection[str], tags: Mapping[str, str], period: Period) -> Side:
    counters = _read(reader, name, {"count"}, tags, period) if name in names else []
    of_position, fields = {**tags, "metric_type": "position"}, {"start", "position"}
    has_positions = counters and positions_of(name) in names
    positions = _read(reader, positions_of(name), fields, of_position, period) if has_positions else []
    return Side(tuple(counters), tuple(positions))


def _read(
    reader: PointReader, name: str, fields: Collection[str], tags: Mapping[str, str], period: Period
) -> list[Metric]:
    wanted = tuple(sorted(fields))
    series = reader.read(
        name, wanted, start_ms=period.start_ms, end_ms=period.until_ms, tags=dict(tags), last_before=True
    )
    return metrics(series)
