"""The dashboard Lag: every consumer group, how far it is behind, and since when."""

from __future__ import annotations

from tallystream.dashboards.grafana import choices, flux, influxql
from tallystream.dashboards.grafana.board import Board, Row
from tallystream.dashboards.grafana.looks import VERDICTS
from tallystream.dashboards.grafana.panel import Panel
from tallystream.dashboards.grafana.query import Queries, Query

_EMPTY = (
    "No lag in this time: does tallystream lag collect run (with --http-port, for Prometheus)? Choose other groups."
)
_GROUPS = 'r._measurement == "tallystream.lag.groups" and r.group =~ /^${group:regex}$/'
_PARTS = 'r._measurement == "tallystream.lag" and r.group =~ /^${group:regex}$/ and r.topic =~ /^${topic:regex}$/'
_GROUPS_QL = '"tallystream.lag.groups"'
_GROUP_QL = '"group" =~ /^${group:regex}$/'
_PART_QL = f'{_GROUP_QL} AND "topic" =~ /^${{topic:regex}}$/'
_GROUP = 'group=~"$group"'
_TOPIC = 'topic=~"$topic"'
_COLUMNS = {
    "group": "Group",
    "verdict": "Verdict",
    "lag": "Lag",
    "seconds": "Age",
    "drain": "Through",
    "members": "Members",
    "state": "State",
    "reason": "Reason",
}

_RENAMED = ", ".join(f'{old}: "{new}"' for old, new in _COLUMNS.items())


def _by_group(field: str, prometheus: str, *, legend: str = "{group}") -> Queries:
    """Return a field of the groups over time."""
    return {
        "flux": (Query(flux.line(f'{_GROUPS} and r._field == "{field}"', labels=("group",)), legend=legend),),
        "influxql": (Query(influxql.line(_GROUPS_QL, field, where=_GROUP_QL, labels=("group",)), legend=legend),),
        "prometheus": (Query(prometheus, legend=legend),),
    }


_NOW = Panel(
    title="Groups",
    kind="table",
    help="Every consumer group as it was last judged; tallystream lag GROUP says more of one.",
    empty=_EMPTY,
    unit="none",
    width=24,
    height=9,
    columns={"Lag": "short", "Age": "s", "Members": "none"},
    mappings=(VERDICTS,),
    queries={
        "flux": (
            Query(
                flux.piped(
                    flux.during(_GROUPS),
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
                'SELECT last("verdict") AS "Verdict", '
                + ", ".join(f'"{old}" AS "{new}"' for old, new in _COLUMNS.items() if old not in {"group", "verdict"})
                + f' FROM {_GROUPS_QL} WHERE $timeFilter AND {_GROUP_QL} GROUP BY "group"',
                table=True,
            ),
        ),
        "prometheus": (
            Query(f"max by (group, verdict) (tallystream_group_verdict{{{_GROUP}}} == 1)", table=True),
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
        "verdict": "Verdict",
        "Value #B": "Lag",
        "Value #C": "Age",
        "Value #D": "Members",
    },
)

_LAG = Panel(
    title="Lag by group",
    help="Records after the committed offset, all partitions together; of some partitions it may not be known.",
    empty=_EMPTY,
    unit="short",
    queries=_by_group("lag", f"max by (group) (kafka_consumergroup_group_sum_lag{{{_GROUP}}})"),
)

_AGE = Panel(
    title="Age of the oldest unconsumed record",
    help="Seconds, told from the history of end offsets; or a lower bound.",
    empty=_EMPTY,
    unit="s",
    queries=_by_group("seconds", f"max by (group) (kafka_consumergroup_group_max_lag_seconds{{{_GROUP}}})"),
)

_VERDICT = Panel(
    title="Verdicts",
    kind="state-timeline",
    help="What each group was judged, over time. The words are explained in docs/lag.md.",
    empty=_EMPTY,
    unit="none",
    mappings=(VERDICTS,),
    queries={
        "flux": (
            Query(
                flux.piped(
                    flux.during(f'{_GROUPS} and r._field == "verdict"'),
                    "aggregateWindow(every: v.windowPeriod, fn: last, createEmpty: false)",
                    'keep(columns: ["_time", "_value", "group"])',
                    'group(columns: ["group"])',
                ),
                legend="{group}",
            ),
        ),
        "influxql": (
            Query(
                influxql.line(_GROUPS_QL, "verdict", where=_GROUP_QL, labels=("group",), fn="last"), legend="{group}"
            ),
        ),
    },
)

_VERDICT_COUNT = Panel(
    title="Groups by verdict",
    help="How many groups were judged so.",
    empty=_EMPTY,
    unit="none",
    queries={
        "prometheus": (Query(f"count by (verdict) (tallystream_group_verdict{{{_GROUP}}} == 1)", legend="{verdict}"),)
    },
)

_FLOW = Panel(
    title="Produced and consumed",
    help="Records a second that come, and that the group gets through, over its window.",
    empty=_EMPTY,
    unit="cps",
    queries={
        "flux": tuple(
            Query(
                flux.line(f'{_GROUPS} and r._field == "{field}"', labels=("group",)),
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

_PARTITIONS = Panel(
    title="Lag by partition",
    help="Records after the committed offset, each partition by itself.",
    empty=_EMPTY,
    unit="short",
    queries={
        "flux": (
            Query(
                flux.line(f'{_PARTS} and r._field == "lag"', labels=("group", "topic", "partition")),
                legend="{group} {topic}/{partition}",
            ),
        ),
        "influxql": (
            Query(
                influxql.line('"tallystream.lag"', "lag", where=_PART_QL, labels=("group", "topic", "partition")),
                legend="{group} {topic}/{partition}",
            ),
        ),
        "prometheus": (
            Query(f"kafka_consumergroup_group_lag{{{_GROUP},{_TOPIC}}}", legend="{group} {topic}/{partition}"),
        ),
    },
)

_SKEW = Panel(
    title="Clock skew",
    help="By how much timestamps are ahead of the records' arrival, or, negative, behind it. It changes no age.",
    empty=_EMPTY,
    unit="s",
    queries={
        "flux": (
            Query(
                flux.piped(
                    flux.line(f'{_PARTS} and r._field == "skew_ms"', labels=("topic", "partition"), fn="last"),
                    "map(fn: (r) => ({r with _value: float(v: r._value) / 1000.0}))",
                ),
                legend="{topic}/{partition}",
            ),
        ),
        "influxql": (
            Query(
                f'SELECT last("skew_ms") / 1000 AS "skew" FROM "tallystream.lag" WHERE $timeFilter AND {_PART_QL} '
                'GROUP BY time($__interval), "topic", "partition" fill(none)',
                legend="{topic}/{partition}",
            ),
        ),
        "prometheus": (
            Query(
                f"max by (topic, partition) (tallystream_lag_skew_seconds{{{_GROUP},{_TOPIC}}})",
                legend="{topic}/{partition}",
            ),
        ),
    },
)

_ROUNDS = Panel(
    title="Rounds of the collector",
    help="How long each round took; where there is none, nobody looked. In Prometheus: how old the newest one was.",
    empty="The collector has not looked in this time: start tallystream lag collect.",
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

BOARD = Board(
    name="lag",
    title="Lag",
    help="How far every consumer group is behind, in records and in seconds, with verdicts and their history.",
    variables=(choices.GROUP, choices.TOPIC),
    rows=(
        Row("Now", (_NOW,)),
        Row("Over time", (_LAG, _AGE, _VERDICT, _VERDICT_COUNT, _FLOW, _PARTITIONS)),
        Row("Clocks and collector", (_SKEW, _ROUNDS)),
    ),
    events={},
)
