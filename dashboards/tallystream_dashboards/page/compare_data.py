"""The data of the view of what was sent and processed, for one refresh."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tallystream_dashboards.data.compare_reading import read_compared, read_sides
from tallystream_dashboards.data.lines import MIN_PERIOD_MS, Line, Period, chart_data
from tallystream_dashboards.data.sides import NUMBERS, CounterKey, countable, sender_to
from tallystream_dashboards.formatting import DASH

if TYPE_CHECKING:
    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.lines import ChartData
    from tallystream_dashboards.data.sides import Compared
    from tallystream_dashboards.page.url_state import Selection

MOMENTS = 60
"""At how many moments the numbers are compared for the chart."""


@dataclass(frozen=True, slots=True)
class CompareView:
    """The choices, with the chosen ones or the defaults in `selection`, and what they compare; None: nothing.

    `counters` are those with positions.
    """

    counters: tuple[CounterKey, ...]
    selection: Selection
    compared: Compared | None

    @property
    def senders(self) -> list[str]:
        """The choices of what was sent, as APP/NAME, after a dash for none."""
        chosen = self.selection.app, self.selection.metric
        return [DASH, *(str(key) for key in self.counters if key != chosen)]


def read_compare(reader: PointReader, selection: Selection, period: Period) -> CompareView:
    """Read the counters with positions, and compare the chosen one with what was sent.

    The default is a consumer that also counts what it takes, and the counter of what was sent to its topics.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    sides = read_sides(reader, None, Period(period.end_ms, period.end_ms, period.until_ms))
    counters = countable(sides)
    app, metric = selection.app, selection.metric
    if selection.from_other_view:
        app = app if any(key.app == app for key in counters) else None
        metric = metric if (app, metric) in counters else None
    found = [key for key in counters if app in (None, key.app) and metric in (None, key.name)]
    if found:
        app, metric = min(found, key=lambda key: (key.taken not in sides, key))
    compared, sent = None, selection.sent
    if app is not None and metric is not None:
        key = CounterKey(app, metric)
        sent = sent or str(sender_to(sides, key, period.until_ms) or DASH)
        compared = read_compared(reader, None if sent == DASH else sent, str(key), None, period)
    chosen = replace(selection, app=app, metric=metric, sent=sent, from_other_view=False)
    return CompareView(tuple(counters), chosen, compared)


def over_time(compared: Compared, period: Period) -> ChartData:
    """Return those numbers over time that are known now: at least so many, and at most so many processed twice.

    They end at the moment up to which the store has everything.
    """
    sides = [side for side in (compared.sent, compared.counted) if side is not None]
    firsts = [series.times_ms[0] for side in sides for one in side.counters for series in one.fields.values()]
    begin_ms = max(period.start_ms, min(*firsts, period.end_ms - MIN_PERIOD_MS))
    step, as_of_ms = (period.end_ms - begin_ms) // MOMENTS, compared.stored.as_of(period.end_ms) or 0
    times = sorted({min(as_of_ms, begin_ms + step * at) for at in range(1, MOMENTS + 1)})
    found = [compared.at(time) for time in times]
    lines = [
        Line(NUMBERS[name], times, [getattr(one, name).known for one in found])
        for name in ("lost", "in_flight", "twice")
    ]
    lines.append(Line("processed twice at most", times, [one.processed_twice.most for one in found]))
    return chart_data([line for line in lines if line.last is not None], begin_ms, period.end_ms)
