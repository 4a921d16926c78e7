"""The panels of the dashboard Lag that are about partitions, clocks and the collector itself."""

from __future__ import annotations

from tallystream_dashboards.grafana.model.panel import Panel
from tallystream_dashboards.grafana.model.query import Query
from tallystream_dashboards.grafana.queries import flux, influxql
from tallystream_dashboards.grafana.queries import lag as q

PARTITIONS = Panel(
    title="Lag by partition",
    help="Records after the committed offset, each partition by itself.",
    empty=q.EMPTY,
    unit="short",
    queries={
        "flux": (
            Query(
                flux.each(f'{q.PARTS} and r._field == "lag"', labels=("group", "topic", "partition")),
                legend="{group} {topic}/{partition}",
            ),
        ),
        "influxql": (
            Query(
                influxql.line('"tallystream.lag"', "lag", where=q.PART_QL, labels=("group", "topic", "partition")),
                legend="{group} {topic}/{partition}",
            ),
        ),
        "prometheus": (
            Query(f"kafka_consumergroup_group_lag{{{q.GROUP},{q.TOPIC}}}", legend="{group} {topic}/{partition}"),
        ),
    },
)

SKEW = Panel(
    title="Clock skew",
    help="By how much timestamps are ahead of the records' arrival, or, negative, behind it. It changes no age.",
    empty=q.EMPTY,
    unit="s",
    queries={
        "flux": (
            Query(
                flux.piped(
                    flux.line(f'{q.PARTS} and r._field == "skew_ms"', labels=("topic", "partition"), fn="mean"),
                    "map(fn: (r) => ({r with _value: float(v: r._value) / 1000.0}))",
                ),
                legend="{topic}/{partition}",
            ),
        ),
        "influxql": (
            Query(
                f'SELECT last("skew_ms") / 1000 AS "skew" FROM "tallystream.lag" WHERE $timeFilter AND {q.PART_QL} '
                'GROUP BY time($__interval), "topic", "partition" fill(none)',
                legend="{topic}/{partition}",
            ),
        ),
        "prometheus": (
            Query(
                f"max by (topic, partition) (tallystream_lag_skew_seconds{{{q.GROUP},{q.TOPIC}}})",
                legend="{topic}/{partition}",
            ),
        ),
    },
)

ROUNDS = Panel(
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
