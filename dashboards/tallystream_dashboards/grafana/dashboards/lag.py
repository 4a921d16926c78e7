"""The dashboard Lag: the lag and the status of every consumer group over time."""

from __future__ import annotations

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
    value_mapping,
)
from tallystream_dashboards.grafana.queries import flux, influxql

NO_DATA = (
    "No lag in this time: select other groups, or start tallystream lag collect (for Prometheus with --http-port)."
)
GROUPS = 'r._measurement == "tallystream.lag.groups" and r.group =~ /^${group:regex}$/'
PARTS = 'r._measurement == "tallystream.lag" and r.group =~ /^${group:regex}$/ and r.topic =~ /^${topic:regex}$/'
GROUPS_QL = '"tallystream.lag.groups"'
GROUP_QL = '"group" =~ /^${group:regex}$/'
PART_QL = f'{GROUP_QL} AND "topic" =~ /^${{topic:regex}}$/'
GROUP = 'group=~"$group"'
TOPIC = 'topic=~"$topic"'


STATUSES = value_mapping(
    {
        status: (status, color)
        for status, color in {
            "OK": GREEN,
            "NOTFOUND": GREY,
            "WARN": YELLOW,
            "REWIND": ORANGE,
            "STALL": RED,
            "STOP": RED,
            "ERR": RED,
        }.items()
    }
)


def by_group(field: str, prometheus: str) -> Queries:
    """Return the queries of a field of the groups over time."""
    return {
        "flux": (Query(flux.series(f'{GROUPS} and r._field == "{field}"', labels=("group",)), legend="{group}"),),
        "influxql": (Query(influxql.line(GROUPS_QL, field, where=GROUP_QL, labels=("group",)), legend="{group}"),),
        "prometheus": (Query(prometheus, legend="{group}"),),
    }


PARTITIONS = Panel(
    title="Lag by partition",
    description="Records after the committed offset of each partition.",
    no_value=NO_DATA,
    unit="short",
    queries={
        "flux": (
            Query(
                flux.series(f'{PARTS} and r._field == "lag"', labels=("group", "topic", "partition")),
                legend="{group} {topic}/{partition}",
            ),
        ),
        "influxql": (
            Query(
                influxql.line('"tallystream.lag"', "lag", where=PART_QL, labels=("group", "topic", "partition")),
                legend="{group} {topic}/{partition}",
            ),
        ),
        "prometheus": (
            Query(f"kafka_consumergroup_group_lag{{{GROUP},{TOPIC}}}", legend="{group} {topic}/{partition}"),
        ),
    },
)

SKEW = Panel(
    title="Clock skew",
    description="How far timestamps are ahead of the records' arrival, or behind it if negative. It affects no age.",
    no_value=NO_DATA,
    unit="s",
    queries={
        "flux": (
            Query(
                flux.pipe(
                    flux.line(f'{PARTS} and r._field == "skew_ms"', labels=("topic", "partition"), fn="mean"),
                    "map(fn: (r) => ({r with _value: float(v: r._value) / 1000.0}))",
                ),
                legend="{topic}/{partition}",
            ),
        ),
        "influxql": (
            Query(
                f'SELECT last("skew_ms") / 1000 AS "skew" FROM "tallystream.lag" WHERE $timeFilter AND {PART_QL} '
                'GROUP BY time($__interval), "topic", "partition" fill(none)',
                legend="{topic}/{partition}",
            ),
        ),
        "prometheus": (
            Query(
                f"max by (topic, partition) (tallystream_lag_skew_seconds{{{GROUP},{TOPIC}}})",
                legend="{topic}/{partition}",
            ),
        ),
    },
)

ROUNDS = Panel(
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

_NOW = Panel(
    title="Groups",
    kind="table",
    description="The last status of every consumer group. tallystream lag show GROUP shows the details of one.",
    no_value=NO_DATA,
    unit="none",
    width=24,
    height=9,
    columns={"Lag": "short", "Time lag": "s", "Members": "none"},
    mappings=(STATUSES,),
    queries={
        "flux": (
            Query(
                flux.pipe(
                    flux.selected(GROUPS),
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
                + f' FROM {GROUPS_QL} WHERE $timeFilter AND {GROUP_QL} GROUP BY "group"',
                table=True,
            ),
        ),
        "prometheus": (
            Query(f"max by (group, status) (tallystream_group_status{{{GROUP}}} == 1)", table=True),
            Query(f"max by (group) (kafka_consumergroup_group_sum_lag{{{GROUP}}})", table=True),
            Query(f"max by (group) (kafka_consumergroup_group_max_lag_seconds{{{GROUP}}})", table=True),
            Query(f"max by (group) (tallystream_group_members{{{GROUP}}})", table=True),
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

_LAG = Panel(
    title="Lag by group",
    description="Records after the committed offset, over all partitions whose lag is known.",
    no_value=NO_DATA,
    unit="short",
    queries=by_group("lag", f"max by (group) (kafka_consumergroup_group_sum_lag{{{GROUP}}})"),
)

_AGE = Panel(
    title="Age of the oldest unconsumed record",
    description="The age in seconds, from the history of end offsets; a lower bound if the history is too short.",
    no_value=NO_DATA,
    unit="s",
    queries=by_group("seconds", f"max by (group) (kafka_consumergroup_group_max_lag_seconds{{{GROUP}}})"),
)

_STATUS = Panel(
    title="Status",
    kind="state-timeline",
    description="The status of each group over time. docs/lag.md explains the statuses.",
    no_value=NO_DATA,
    unit="none",
    mappings=(STATUSES,),
    queries={
        "flux": (
            Query(
                flux.series(f'{GROUPS} and r._field == "status"', labels=("group",)),
                legend="{group}",
            ),
        ),
        "influxql": (
            Query(influxql.line(GROUPS_QL, "status", where=GROUP_QL, labels=("group",), fn="last"), legend="{group}"),
        ),
    },
)

_STATUS_COUNT = Panel(
    title="Groups by status",
    description="The number of groups with each status.",
    no_value=NO_DATA,
    unit="none",
    queries={
        "prometheus": (Query(f"count by (status) (tallystream_group_status{{{GROUP}}} == 1)", legend="{status}"),)
    },
)

_FLOW = Panel(
    title="Produced and consumed",
    description="Records per second that are produced, and that the group consumes, over its window.",
    no_value=NO_DATA,
    unit="cps",
    queries={
        "flux": tuple(
            Query(
                flux.series(f'{GROUPS} and r._field == "{field}"', labels=("group",)),
                legend=f"{field}, {{group}}",
            )
            for field in ("produced", "consumed")
        ),
        "influxql": tuple(
            Query(
                influxql.line(GROUPS_QL, field, where=GROUP_QL, labels=("group",)),
                legend=f"{field}, {{group}}",
            )
            for field in ("produced", "consumed")
        ),
        "prometheus": (
            Query(
                f"sum by (group) (deriv(kafka_consumergroup_group_offset{{{GROUP}}}[$__rate_interval]))",
                legend="consumed, {group}",
            ),
            Query(
                f"sum by (topic) (deriv(kafka_partition_latest_offset{{{TOPIC}}}[$__rate_interval]))",
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
        Row("Over time", (_LAG, _AGE, _STATUS, _STATUS_COUNT, _FLOW, PARTITIONS)),
        Row("Clocks and collector", (SKEW, ROUNDS)),
    ),
    events={},
)
