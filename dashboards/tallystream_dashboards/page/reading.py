"""The one reading of the store that a run of the page draws from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from tallystream_dashboards.data.groups import (
    GroupsNow,
    GroupsView,
    GroupView,
    read_group_view,
    read_groups_now,
    read_groups_view,
)
from tallystream_dashboards.data.home import Home, read_home
from tallystream_dashboards.data.observed import Observed, read_observed
from tallystream_dashboards.page.compare_data import CompareView, read_compare
from tallystream_dashboards.page.metrics_data import MetricsView, read_metrics

if TYPE_CHECKING:
    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.lines import Period
    from tallystream_dashboards.page.url_state import Selection

View: TypeAlias = "Home | GroupsView | GroupView | MetricsView | CompareView | None"


@dataclass(frozen=True, slots=True)
class PageData:
    """What every part of the page shows. The banner, the tiles, the charts and the tables have no other source.

    `selection` has the defaults of the view. `view` is the data of the chosen view; None: the store has none for it.
    """

    selection: Selection
    period: Period
    groups: GroupsNow
    observed: Observed
    has_points: bool
    view: View = None


def read_page(reader: PointReader, selection: Selection, period: Period) -> PageData:
    """Read what the page shows. All lag is that of one round of the collector.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    if not reader.measurements():
        return PageData(selection, period, GroupsNow((), None), Observed(), has_points=False)
    groups = read_groups_now(reader, period)
    observed = read_observed(reader, end_ms=period.end_ms, until_ms=period.until_ms)
    view: View = None
    if selection.view == "home":
        view = read_home(reader, observed.apps, period, round_ms=groups.round_ms)
    elif selection.view == "metrics":
        view = read_metrics(reader, selection, period, observed.apps, round_ms=groups.round_ms)
        selection = replace(selection, app=view.app, metric=view.metric, from_other_view=False)
    elif selection.view == "compare":
        view = read_compare(reader, selection, period)
        selection = view.selection
    elif selection.view == "groups" and groups.round_ms is not None:
        one = selection.group
        view = read_group_view(reader, groups, one, period) if one else read_groups_view(reader, groups, period)
    return PageData(selection, period, groups, observed, has_points=True, view=view)
