"""The dashboard Lag: the lag and the status of every consumer group over time."""

from __future__ import annotations

from functools import partial

from tallystream_dashboards.grafana.dashboards import variables
from tallystream_dashboards.grafana.model.dashboard import Dashboard, Row
from tallystream_dashboards.grafana.model.panel import (
    GREEN,
    GREY,
    ORANGE,
    RED,
    YELLOW,
    Panel,
    Queries,
    Query,
    queries,
    value_mapping,
)
from tallystream_dashboards.grafana.queries import flux, influxql

_NO_DATA = (
    "No lag in this time: select other groups, or start tallystream lag collect (for Prometheus with --http-port)."
)
_GROUPS = 'r._measurement == "tallystream.lag.groups" and r.group =~ /^${group:regex}$/'
_PARTS = 'r._measurement == "tallystream.lag" and r.group =~ /^${group:regex}$/ and r.topic =~ /^${topic:regex}$/'
_GROUPS_QL = '"tallystream.lag.groups"'
_GROUP_QL = '"group" =~ /^${group:regex}$/'
_PART_QL = f'{_GROUP_QL} AND "topic" =~ /^${{topic:regex}}$/'
_GROUP = 'group=~"$group"'
_TOPIC = 'topic=~"$topic"'

_panel = partial(Panel, no_value=_NO_DATA)

_STATUSES = value_mapping(
    {
        "OK": ("OK", GREEN),
        "NOTFOUND": ("NOTFOUND", GREY),
        "WARN": ("WARN", YELLOW),
        "REWIND": ("REWIND", ORANGE),
        "STALL": ("STALL", RED),
        "STOP": ("STOP", RED),
        "ERR": ("ERR", RED),
    }
)


def _by_group(field: str, prometheus: str) -> Queries:
    """Return the queries of a field of the groups over time."""
    return queries(
        legend="{group}",
        flux=flux.series(f'{_GROUPS} and r._field == "{field}"', labels=("group",)),
        influxql=influxql.line(_GROUPS_QL, field, where=_GROUP_QL, labels=("group",)),
        prometheus=prometheus,
    )


_PARTITIONS = _panel(
    title="Lag by partition",
    description="Records after the committed offset of each partition.",
    unit="short",
    queries=queries(
        legend="{group} {topic}/{partition}",
        flux=flux.series(f'{_PARTS} and r._field == "lag"', labels=("group", "topic", "partition")),
        influxql=influxql.line('"tallystream.lag"', "lag", where=_PART_QL, labels=("group", "topic", "partition")),
        prometheus=f"kafka_consumergroup_group_lag{{{_GROUP},{_TOPIC}}}",
    ),
)

_SKEW = _panel(
    title="Clock skew",
    description="How far timestamps are ahead of the records' arrival, or behind it if negative. It affects no age.",
    unit="s",
    queries=queries(
        legend="{topic}/{partition}",
        flux=flux.pipe(
            flux.line(f'{_PARTS} and r._field == "skew_ms"', labels=("topic", "partition"), fn="mean"),
            "map(fn: (r) => ({r with _value: float(v: r._value) / 1000.0}))",
        ),
        influxql=f'SELECT last("skew_ms") / 1000 AS "skew" FROM "tallystream.lag" WHERE $timeFilter AND {_PART_QL} '
        'GROUP BY time($__interval), "topic", "partition" fill(none)',
        prometheus=f"max by (topic, partition) (tallystream_lag_skew_seconds{{{_GROUP},{_TOPIC}}})",
    ),
)

_ROUNDS = Panel(
    title="Rounds of the collector",
    description="The duration of each round. A gap means that no collector ran. In Prometheus, the age of the newest "
    "round.",
    no_value="The collector has measured nothing in this time: start tallystream lag collect.",
    unit="s",
    queries={
        "flux": (
            Query(
                flux.line('r._measurement == "tallystream.lag.rounds" and r._field == "took_s"', labels=()),
                legend="took",
            ),
        ),
        "influxql": (Query(influxql.line('"tallystream.lag.rounds"', "took_s"), legend="took"),),
        "prometheus": (Query("time() - max(tallystream_lag_round_time_seconds)", legend="age of the newest"),),
    },
)

_COLUMNS = {
    "group": "Group",
    "status": "Status",
    "lag": "Lag",
    "seconds": "Time lag",
    "drain": "Catches up in",
    "members": "Members",
    "state": "State",
    "reason": "Reason",
}

_RENAMED = ", ".join(f'{old}: "{new}"' for old, new in _COLUMNS.items())

_NOW = _panel(
    title="Groups",
    kind="table",
    description="The last status of every consumer group. tallystream lag show GROUP shows the details of one.",
    unit="none",
    width=24,
    height=9,
    columns={"Lag": "short", "Time lag": "s", "Members": "none"},
    mappings=(_STATUSES,),
    queries={
        "flux": (
            Query(
                flux.pipe(
                    flux.selected(_GROUPS),
                    "last()",
                    'drop(columns: ["_start", "_stop"])',
                    'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")',
                    'group(columns: ["group"])',
                    'sort(columns: ["_time"])',
                    'last(column: "status")',
                    "group()",
                    f"keep(columns: {flux.columns(*_COLUMNS)})",
                    f"rename(columns: {{{_RENAMED}}})",
                ),
                table=True,
            ),
        ),
        "influxql": (
            Query(
                'SELECT last("status") AS "Status", '
                + ", ".join(f'"{old}" AS "{new}"' for old, new in _COLUMNS.items() if old not in {"group", "status"})
                + f' FROM {_GROUPS_QL} WHERE $timeFilter AND {_GROUP_QL} GROUP BY "group"',
                table=True,
            ),
        ),
        "prometheus": (
            Query(f"max by (group, status) (tallystream_group_status{{{_GROUP}}} == 1)", table=True),
            Query(f"max by (group) (kafka_consumergroup_group_sum_lag{{{_GROUP}}})", table=True),
            Query(f"max by (group) (kafka_consumergroup_group_max_lag_seconds{{{_GROUP}}})", table=True),
            Query(f"max by (group) (tallystream_group_members{{{_GROUP}}})", table=True),
        ),
    },
    join="group",
    rename={
        "Time": "",
        **{f"Time {number}": "" for number in range(1, 5)},
        "Value #A": "",
        "group": "Group",
        "status": "Status",
        "Value #B": "Lag",
        "Value #C": "Time lag",
        "Value #D": "Members",
    },
)

_LAG = _panel(
    title="Lag by group",
    description="Records after the committed offset, over all partitions whose lag is known.",
    unit="short",
    queries=_by_group("lag", f"max by (group) (kafka_consumergroup_group_sum_lag{{{_GROUP}}})"),
)

_AGE = _panel(
    title="Age of the oldest unconsumed record",
    description="The age in seconds, from the history of end offsets; a lower bound if the history is too short.",
    unit="s",
    queries=_by_group("seconds", f"max by (group) (kafka_consumergroup_group_max_lag_seconds{{{_GROUP}}})"),
)

_STATUS = _panel(
    title="Status",
    kind="state-timeline",
    description="The status of each group over time. docs/lag.md explains the statuses.",
    unit="none",
    mappings=(_STATUSES,),
    queries=queries(
        legend="{group}",
        flux=flux.series(f'{_GROUPS} and r._field == "status"', labels=("group",)),
        influxql=influxql.line(_GROUPS_QL, "status", where=_GROUP_QL, labels=("group",), fn="last"),
    ),
)

_STATUS_COUNT = _panel(
    title="Groups by status",
    description="The number of groups with each status.",
    unit="none",
    queries=queries(legend="{status}", prometheus=f"count by (status) (tallystream_group_status{{{_GROUP}}} == 1)"),
)

_FLOW = _panel(
    title="Produced and consumed",
    description="Records per second that are produced, and that the group consumes, over its window.",
    unit="cps",
    queries={
        "flux": tuple(
            Query(
                flux.series(f'{_GROUPS} and r._field == "{field}"', labels=("group",)),
                legend=f"{field}, {{group}}",
            )
            for field in ("produced", "consumed")
        ),
        "influxql": tuple(
            Query(
                influxql.line(_GROUPS_QL, field, where=_GROUP_QL, labels=("group",)),
                legend=f"{field}, {{group}}",
            )
            for field in ("produced", "consumed")
        ),
        "prometheus": (
            Query(
                f"sum by (group) (deriv(kafka_consumergroup_group_offset{{{_GROUP}}}[$__rate_interval]))",
                legend="consumed, {group}",
            ),
            Query(
                f"sum by (topic) (deriv(kafka_partition_latest_offset{{{_TOPIC}}}[$__rate_interval]))",
                legend="produced, {topic}",
            ),
        ),
    },
)

DASHBOARD = Dashboard(
    name="lag",
    title="Lag",
    description="The lag of every consumer group, in records and in seconds, with statuses and their history.",
    variables=(variables.GROUP, variables.TOPIC),
    rows=(
        Row("Now", (_NOW,)),
        Row("Over time", (_LAG, _AGE, _STATUS, _STATUS_COUNT, _FLOW, _PARTITIONS)),
        Row("Clocks and collector", (_SKEW, _ROUNDS)),
    ),
)
