"""Read the data of the pipeline view from the store, for one refresh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.shipping.points import is_sum
from tallystream_dashboards.lag.reader import read_group
from tallystream_dashboards.lag.storage import ALL, ENDS, GROUPS
from tallystream_dashboards.page.data.lines import Drawn, Line, draw
from tallystream_dashboards.page.data.pipeline import Hop, hops, last_arrival_ms, own_groups
from tallystream_dashboards.page.data.read_sums import MAX_MEASUREMENTS
from tallystream_dashboards.page.url_state import AHEAD_MS

if TYPE_CHECKING:
    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.page.data.read_lag import GroupsView


def read_pipeline(
    reader: PointReader, groups: GroupsView, *, at_ms: int, range_s: int, ahead_ms: int = AHEAD_MS
) -> tuple[list[Hop], Drawn]:
    """Return the hops at a moment, and the time lag of the aggregator and the shipper over the period.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    aggregator, shipper = own_groups(groups.states)
    start_ms, until_ms = at_ms - range_s * 1000, at_ms + ahead_ms
    detailed = read_group(reader, aggregator.group, at_ms=at_ms) if aggregator is not None else None
    # The aggregator reads the topics that instances report to.
    topics = sorted({one.topic for one in detailed.partitions}) if detailed is not None else []
    ends = [
        one
        for topic in topics
        for one in reader.read(ENDS, ("end",), start_ms=start_ms, end_ms=until_ms, tags={"topic": topic})
    ]
    lines = []
    # Unchanged points are not stored: the last age is valid until the newest round, unless the group is gone.
    gone = any(state.gone for state in (aggregator, shipper) if state is not None)
    for name, state in (("metrics → sums", aggregator), ("sums → store", shipper)):
        if state is not None:
            found = reader.read(GROUPS, ("seconds",), start_ms=start_ms, end_ms=until_ms, tags={"group": state.group})
            lines += [Line(name, list(one.times_ms), [float(value) for value in one.values]) for one in found]
    found_hops = hops(
        aggregator,
        shipper,
        arrived_ms=last_arrival_ms(ends),
        stored_ms=_newest_sum_ms(reader, start_ms=start_ms, end_ms=until_ms),
        now_ms=at_ms,
    )
    return found_hops, draw(lines, start_ms, at_ms, until_ms=None if gone else groups.as_of_ms)


def _newest_sum_ms(reader: PointReader, *, start_ms: int, end_ms: int) -> int | None:
    names = [name for name in reader.measurements() if name not in ALL and is_sum(name)]
    found = (
        one.times_ms[-1]
        for name in names[:MAX_MEASUREMENTS]
        for one in reader.read(name, ("lives",), start_ms=start_ms, end_ms=end_ms)
    )
    return max(found, default=None)
