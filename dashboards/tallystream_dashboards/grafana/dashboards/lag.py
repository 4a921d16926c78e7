"""The dashboard Lag: every consumer group, how far it is behind, and since when."""

from __future__ import annotations

from tallystream_dashboards.grafana.dashboards import lag_panels, variables
from tallystream_dashboards.grafana.model.dashboard import Board, Row
from tallystream_dashboards.grafana.model.panel import Panel
from tallystream_dashboards.grafana.model.panel_options import VERDICTS
from tallystream_dashboards.grafana.model.query import Query
from tallystream_dashboards.grafana.queries import flux, influxql
from tallystream_dashboards.grafana.queries import lag as q

_COLUMNS = {
    "group": "Group",
    "verdict": "Status",
    "lag": "Lag",
    "seconds": "Time lag",
    "drain": "Catches up in",
    "members": "Members",
    "state": "State",
    "reason": "Reason",
}

_RENAMED = ", ".join(f'{old}: "{new}"' for old, new in _COLUMNS.items())

_NOW = Panel(
    title="Groups",
    kind="table",
    help="The last status of every consumer group; tallystream lag show GROUP says more of one.",
    empty=q.EMPTY,
    unit="none",
    width=24,
    height=9,
    columns={"Lag": "short", "Time lag": "s", "Members": "none"},
    mappings=(VERDICTS,),
    queries={
        "flux": (
            Query(
                flux.piped(
                    flux.during(q.GROUPS),
                    "last()",
                    'drop(columns: ["_start", "_stop"])',
                    'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")',
                    'group(columns: ["group"])',
                    'sort(columns: ["_time"])',
                    'last(column: "verdict")',
                    "group()",
                    f"keep(columns: {flux.by(*_COLUMNS)})",
                    f"rename(columns: {{{_RENAMED}}})",
                ),
                table=True,
            ),
        ),
        "influxql": (
            Query(
                'SELECT last("verdict") AS "Status", '
                + ", ".join(f'"{old}" AS "{new}"' for old, new in _COLUMNS.items() if old not in {"group", "verdict"})
                + f' FROM {q.GROUPS_QL} WHERE $timeFilter AND {q.GROUP_QL} GROUP BY "group"',
                table=True,
            ),
        ),
        "prometheus": (
            Query(f"max by (group, verdict) (tallystream_group_verdict{{{q.GROUP}}} == 1)", table=True),
            Query(f"max by (group) (kafka_consumergroup_group_sum_lag{{{q.GROUP}}})", table=True),
            Query(f"max by (group) (kafka_consumergroup_group_max_lag_seconds{{{q.GROUP}}})", table=True),
            Query(f"max by (group) (tallystream_group_members{{{q.GROUP}}})", table=True),
        ),
    },
    join="group",
    rename={
        "Time": "",
        **{f"Time {number}": "" for number in range(1, 5)},
        "Value #A": "",
        "group": "Group",
        "verdict": "Status",
        "Value #B": "Lag",
        "Value #C": "Time lag",
        "Value #D": "Members",
    },
)

_LAG = Panel(
    title="Lag by group",
    help="Records after the committed offset, all partitions together; of some partitions it may not be known.",
    empty=q.EMPTY,
    unit="short",
    queries=q.by_group("lag", f"max by (group) (kafka_consumergroup_group_sum_lag{{{q.GROUP}}})"),
)

_AGE = Panel(
    title="Age of the oldest unconsumed record",
    help="Seconds, told from the history of end offsets; or a lower bound.",
    empty=q.EMPTY,
    unit="s",
    queries=q.by_group("seconds", f"max by (group) (kafka_consumergroup_group_max_lag_seconds{{{q.GROUP}}})"),
)

_VERDICT = Panel(
    title="Status",
    kind="state-timeline",
    help="The status of each group over time. docs/lag.md explains the words.",
    empty=q.EMPTY,
    unit="none",
    mappings=(VERDICTS,),
    queries={
        "flux": (
            Query(
                flux.each(f'{q.GROUPS} and r._field == "verdict"', labels=("group",)),
                legend="{group}",
            ),
        ),
        "influxql": (
            Query(
                influxql.line(q.GROUPS_QL, "verdict", where=q.GROUP_QL, labels=("group",), fn="last"), legend="{group}"
            ),
        ),
    },
)

_VERDICT_COUNT = Panel(
    title="Groups by status",
    help="How many groups have each status.",
    empty=q.EMPTY,
    unit="none",
    queries={
        "prometheus": (Query(f"count by (verdict) (tallystream_group_verdict{{{q.GROUP}}} == 1)", legend="{verdict}"),)
    },
)

_FLOW = Panel(
    title="Produced and consumed",
    help="Records a second that are produced, and that the group consumes, over its window.",
    empty=q.EMPTY,
    unit="cps",
    queries={
        "flux": tuple(
            Query(
                flux.each(f'{q.GROUPS} and r._field == "{field}"', labels=("group",)),
                legend=f"{field}, {{group}}",
            )
            for field in ("produced", "consumed")
        ),
        "influxql": tuple(
            Query(
                influxql.line(q.GROUPS_QL, field, where=q.GROUP_QL, labels=("group",)),
                legend=f"{field}, {{group}}",
            )
            for field in ("produced", "consumed")
        ),
        "prometheus": (
            Query(
                f"sum by (group) (deriv(kafka_consumergroup_group_offset{{{q.GROUP}}}[$__rate_interval]))",
                legend="consumed, {group}",
            ),
            Query(
                f"sum by (topic) (deriv(kafka_partition_latest_offset{{{q.TOPIC}}}[$__rate_interval]))",
                legend="produced, {topic}",
            ),
        ),
    },
)

BOARD = Board(
    name="lag",
    title="Lag",
    help="How far every consumer group is behind, in records and in seconds, with verdicts and their history.",
    variables=(variables.GROUP, variables.TOPIC),
    rows=(
        Row("Now", (_NOW,)),
        Row("Over time", (_LAG, _AGE, _VERDICT, _VERDICT_COUNT, _FLOW, lag_panels.PARTITIONS)),
        Row("Clocks and collector", (lag_panels.SKEW, lag_panels.ROUNDS)),
    ),
    events={},
)
