"""Sums that grew steadily and have stopped, while instances live that report them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.health.internal_metrics import APP as OWN_APP
from tallystream_aggregator.sinks.base import is_sum
from tallystream_dashboards.data.lines import Line, total
from tallystream_dashboards.data.sums import MAX_MEASUREMENTS, metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.sinks.base import PointReader

STEADY, ENDS_AFTER = 5, 36
"""In how many periods in a row a sum must have grown, and how many periods ago at most."""

_TYPES = ("counter", "meter")


class Stopped(NamedTuple):
    """A sum of an app, over its tags, and when it last grew, epoch ms."""

    app: str
    name: str
    since_ms: int


def read_stopped(reader: PointReader, *, at_ms: int, period_ms: int) -> Iterator[Stopped]:
    """Yield the sums that grew in five periods in a row, and not in the newest one.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    for name in [*filter(is_sum, reader.measurements())][:MAX_MEASUREMENTS]:
        for app in _idle(reader, name, at_ms, period_ms):
            line = _counts(reader, name, at_ms - (ENDS_AFTER + STEADY) * period_ms, at_ms, app).get(app, Line(app))
            values = [line.at(at_ms - place * period_ms) for place in range(ENDS_AFTER + STEADY + 1)]
            grew = [_grew(earlier, later) for later, earlier in pairwise(values)]
            if any(all(grew[place : place + STEADY]) for place in range(1, ENDS_AFTER + 1)):
                points = pairwise(zip(line.times_ms, line.values, strict=True))
                yield Stopped(app, name, max(time for (_, before), (time, value) in points if _grew(before, value)))


def _grew(earlier: float | None, later: float | None) -> bool:
    return earlier is not None and later is not None and later > earlier


def _idle(reader: PointReader, name: str, at_ms: int, period_ms: int) -> list[str]:
    """Return the apps whose sum has not grown in the newest period, and has living instances."""
    series = reader.read(name, ("instances",), start_ms=at_ms, end_ms=at_ms + 1, last_before=True)
    living = {one.app for one in metrics(series) if one.type in _TYPES and one.newest("instances")}
    counts = _counts(reader, name, at_ms - period_ms, at_ms) if living else {}
    of_others = sorted(counts.keys() & living - {OWN_APP})
    return [app for app in of_others if counts[app].last == counts[app].at(at_ms - period_ms)]


def _counts(reader: PointReader, name: str, start_ms: int, end_ms: int, app: str | None = None) -> dict[str, Line]:
    """Return the total of the counts of each app."""
    tags = None if app is None else {"app": app}
    series = reader.read(name, ("count",), start_ms=start_ms, end_ms=end_ms + 1, tags=tags, last_before=True)
    lines: dict[str, list[Line]] = {}
    for one in metrics(series):
        if one.type in _TYPES:
            lines.setdefault(one.app, []).append(one.value)
    return {app: total(of_app) for app, of_app in lines.items()}
