"""The CSV of a table or a chart: `/csv?table=groups-table&view=groups`, with the parameters of the page's address.

It is read from the store when it is requested. Streamlit's own downloads are lost if the page refreshes meanwhile.
"""

from __future__ import annotations

import time
from contextlib import closing
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import open_reader
from tallystream_dashboards.data.duplicates import read_duplicates
from tallystream_dashboards.data.groups import read_group_view, read_groups_now, read_groups_view
from tallystream_dashboards.data.lines import chart_data
from tallystream_dashboards.data.pipeline import read_pipeline
from tallystream_dashboards.page import exports
from tallystream_dashboards.page.metrics_data import read_metrics
from tallystream_dashboards.page.url_state import parse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_dashboards.data.period import Period
    from tallystream_dashboards.page.exports import Rows
    from tallystream_dashboards.page.url_state import Selection

PATH = "/csv"


def endpoint(store: StoreSettings) -> Callable[[Request], Awaitable[Response]]:
    """Return the function that answers requests of `PATH`."""

    def rows(request: Request) -> Rows | None:
        selection = parse(request.query_params)
        with closing(open_reader(store)) as reader:
            period = selection.period(round(time.time() * 1000))
            return read_rows(reader, selection, period, request.query_params.get("table", ""))

    async def answer(request: Request) -> Response:
        try:
            found = await run_in_threadpool(rows, request)
        except (SinkUnavailableError, ConfigError) as error:
            return PlainTextResponse(f"The store can't be read: {error}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        if found is None:
            return PlainTextResponse("There is no such table in this view.\n", HTTPStatus.NOT_FOUND)
        name = request.query_params["table"]
        headers = {"content-disposition": f'attachment; filename="{name}.csv"', "cache-control": "no-store"}
        return Response(exports.csv_text(found), media_type="text/csv", headers=headers)

    return answer


def read_rows(reader: PointReader, selection: Selection, period: Period, table: str) -> Rows | None:
    """Return the rows of a table or a chart of the selected view; None if the view has none of this name.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    if selection.view in ("metrics", "twice"):
        return _of_sums(reader, selection, period, table)
    groups = read_groups_now(reader, period)
    if selection.view == "pipeline":
        hops, delays = read_pipeline(reader, groups, period)
        return {"hops-table": exports.hops(hops), "delay-chart": exports.points(delays)}.get(table)
    if selection.group is None:
        if table == "groups-table":
            return exports.groups(groups.states)
        view = read_groups_view(reader, groups, period)
        return {"lag-chart": exports.points(view.chart)}.get(table)
    one = read_group_view(reader, selection.group, period)
    return {
        "partitions-table": exports.partitions(one.state.partitions if one.state is not None else ()),
        "lag-chart": exports.points(one.by_partition),
        "rates-chart": exports.points(one.rates),
        "seconds-chart": exports.points(one.time_lag),
    }.get(table)


def _of_sums(reader: PointReader, selection: Selection, period: Period, table: str) -> Rows | None:
    round_ms = read_groups_now(reader, period).round_ms
    view = read_metrics(reader, selection, period, round_ms=round_ms)
    if selection.view == "metrics":
        return {
            "sums-table": exports.sums(view.metrics),
            "own-sums-table": exports.sums(view.own_metrics),
            "events-table": exports.events(view.events),
            "sum-chart": exports.points(view.over_time),
            "instances-chart": exports.points(view.instances),
            "instance-chart": exports.points(view.by_instance),
        }.get(table)
    found = read_duplicates(reader, view.chosen, period)
    if found is None:
        return None
    over_time = chart_data([found.over_time], *view.over_time.period_ms, until_ms=view.until_ms)
    return {
        "covered-table": exports.covered_offsets(found.partitions),
        "twice-chart": exports.points(over_time),
    }.get(table)
