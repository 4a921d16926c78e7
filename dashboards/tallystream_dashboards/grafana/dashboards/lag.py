"""The dashboard Lag: every consumer group, how far it is behind, and since when."""

from __future__ import annotations

from tallystream_dashboards.grafana.dashboards import variables
from tallystream_dashboards.grafana.model.dashboard import Dashboard, Row
from tallystream_dashboards.grafana.model.panel import STATUS_COLOURS, Panel
from tallystream_dashboards.grafana.model.query import Queries, Query
from tallystream_dashboards.grafana.queries import flux, influxql

EMPTY = "No lag in this time: does tallystream lag collect run (with --http-port, for Prometheus)? Choose other groups."
GROUPS = 'r._measurement == "tallystream.lag.groups" and r.group =~ /^${group:regex}$/'
PARTS = 'r._measurement == "tallystream.lag" and r.group =~ /^${group:regex}$/ and r.topic =~ /^${topic:regex}$/'
GROUPS_QL = '"tallystream.lag.groups"'
GROUP_QL = '"group" =~ /^${group:regex}$/'
PART_QL = f'{GROUP_QL} AND "topic" =~ /^${{topic:regex}}$/'
GROUP = 'group=~"$group"'
TOPIC = 'topic=~"$topic"'


def by_group(field: str, prometheus: str, *, legend: str = "{group}") -> Queries:
    """Return a field of the groups over time."""
    return {
        "flux": (Query(flux.each(f'{GROUPS} and r._field == "{field}"', labels=("group",)), legend=legend),),
        "influxql": (Query(influxql.line(GROUPS_QL, field, where=GROUP_QL, labels=("group",)), legend=legend),),
        "prometheus": (Query(prometheus, legend=legend),),
    }


PARTITIONS = Panel(
    title="Lag by partition",
    help="Records after the committed offset, each partition by itself.",
    empty=EMPTY,
    unit="short",
    queries={
        "flux": (
            Query(
                flux.each(f'{PARTS} and r._field == "lag"', labels=("group", "topic", "partition")),
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
    help="By how much timestamps are ahead of the records' arrival, or, negative, behind it. It changes no age.",
    empty=EMPTY,
    unit="s",
    queries={
        "flux": (
            Query(
                flux.piped(
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
    help="The duration of each round. A gap means that no collector ran. In Prometheus: the age of the newest round.",
    empty="The collector has measured nothing in this time: start tallystream lag collect.",
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
    help="The last status of every consumer group. tallystream lag show GROUP shows the details of one.",
    empty=EMPTY,
    unit="none",
    width=24,
    height=9,
    columns={"Lag": "short", "Time lag": "s", "Members": "none"},
    mappings=(STATUS_COLOURS,),
    queries={
        "flux": (
            Query(
                flux.piped(
                    flux.during(GROUPS),
                    "last()",
                    'drop(columns: ["_start", "_stop"])',
                    'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")',
                    'group(columns: ["group"])',
                    'sort(columns: ["_time"])',
                    'last(column: "status")',
                    "group()",
                    f"keep(columns: {flux.by(*_COLUMNS)})",
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
    help="Records after the committed offset, all partitions together; of some partitions it may not be known.",
    empty=EMPTY,
    unit="short",
    queries=by_group("lag", f"max by (group) (kafka_consumergroup_group_sum_lag{{{GROUP}}})"),
)

_AGE = Panel(
    title="Age of the oldest unconsumed record",
    help="Seconds, from the history of end offsets, or a lower bound.",
    empty=EMPTY,
    unit="s",
    queries=by_group("seconds", f"max by (group) (kafka_consumergroup_group_max_lag_seconds{{{GROUP}}})"),
)

_STATUS = Panel(
    title="Status",
    kind="state-timeline",
    help="The status of each group over time. docs/lag.md explains the words.",
    empty=EMPTY,
    unit="none",
    mappings=(STATUS_COLOURS,),
    queries={
        "flux": (
            Query(
                flux.each(f'{GROUPS} and r._field == "status"', labels=("group",)),
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
    help="How many groups have each status.",
    empty=EMPTY,
    unit="none",
    queries={
        "prometheus": (Query(f"count by (status) (tallystream_group_status{{{GROUP}}} == 1)", legend="{status}"),)
    },
)

_FLOW = Panel(
    title="Produced and consumed",
    help="Records a second that are produced, and that the group consumes, over its window.",
    empty=EMPTY,
    unit="cps",
    queries={
        "flux": tuple(
            Query(
                flux.each(f'{GROUPS} and r._field == "{field}"', labels=("group",)),
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

BOARD = Dashboard(
    name="lag",
    title="Lag",
    help="How far every consumer group is behind, in records and in seconds, with statuses and their history.",
    variables=(variables.GROUP, variables.TOPIC),
    rows=(
        Row("Now", (_NOW,)),
        Row("Over time", (_LAG, _AGE, _STATUS, _STATUS_COUNT, _FLOW, PARTITIONS)),
        Row("Clocks and collector", (SKEW, ROUNDS)),
    ),
    events={},
)
