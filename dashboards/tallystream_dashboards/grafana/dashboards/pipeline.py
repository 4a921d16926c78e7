"""The dashboard Pipeline: the aggregator and the shipper themselves, by the figures of docs/health.md."""

from __future__ import annotations

from tallystream_dashboards.grafana.model.dashboard import Dashboard, Row
from tallystream_dashboards.grafana.model.panel import Panel, yes_no
from tallystream_dashboards.grafana.model.query import Query
from tallystream_dashboards.grafana.queries import flux, influxql, phases, promql
from tallystream_dashboards.grafana.queries.promql import figures, rates

_EMPTY = "No figures: do aggregator and shipper run, without --no-own-metrics, or with --http-port for Prometheus?"
_NO_LAG = "No lag of the shipper's and the aggregator's groups: start tallystream lag collect."
_OWN_GROUPS = "tallystream-(aggregator|shipper)"


_READY = Panel(
    title="Ready",
    kind="stat",
    help="Whether each does its work: the word of /readyz.",
    empty=_EMPTY,
    unit="none",
    width=6,
    height=5,
    mappings=(yes_no("ready", "not ready"),),
    queries=figures("ready", legend="{command}"),
)
_SINCE = Panel(
    title="Since the last batch",
    kind="stat",
    help="The time since the newest batch of each began. Without new records there are no batches.",
    empty=_EMPTY,
    unit="s",
    width=6,
    height=5,
    queries={
        "flux": (
            Query(
                flux.piped(
                    flux.own("tallystream.batch.time_seconds"),
                    "last()",
                    "map(fn: (r) => ({r with _value: float(v: uint(v: v.timeRangeStop)) / 1000000000.0 - r._value}))",
                ),
                legend="{command}",
            ),
        ),
        "prometheus": (Query(f"time() - {promql.own('tallystream_batch_time_seconds')}", legend="{command}"),),
    },
)
_STORE = Panel(
    title="Store",
    kind="stat",
    help="Whether the shipper reaches its store; while it does not, points wait on Kafka.",
    empty=_EMPTY,
    unit="none",
    width=6,
    height=5,
    mappings=(yes_no("away", "reached", good=False),),
    queries=figures("ship.store_unavailable", legend="{command}"),
)
_EPOCH = Panel(
    title="Epoch",
    kind="stat",
    help="Under which the newest batch was written: one more whenever an aggregator takes over.",
    empty=_EMPTY,
    unit="none",
    width=6,
    height=5,
    queries=figures("epoch", legend="{command}"),
)
_AGE = Panel(
    title="Age of what is not in the store",
    help="Of the oldest record that the aggregator has not summed, and of the oldest sum that the shipper has not "
    "written: seconds.",
    empty=_NO_LAG,
    unit="s",
    queries={
        "flux": (
            Query(
                flux.line(
                    f'r._measurement == "tallystream.lag.groups" and r.group =~ /{_OWN_GROUPS}$/ and '
                    'r._field == "seconds"',
                    labels=("group",),
                ),
                legend="{group}",
            ),
        ),
        "influxql": (
            Query(
                influxql.line(
                    '"tallystream.lag.groups"', "seconds", where=f'"group" =~ /{_OWN_GROUPS}$/', labels=("group",)
                ),
                legend="{group}",
            ),
        ),
        "prometheus": (
            Query(
                f'max by (group) (kafka_consumergroup_group_max_lag_seconds{{group=~".*{_OWN_GROUPS}"}})',
                legend="{group}",
            ),
        ),
    },
)
_BEHIND = Panel(
    title="Records to read",
    help="The end of each partition at the start of the newest batch, minus the next offset that the query reads.",
    empty=_EMPTY,
    unit="short",
    queries={
        "flux": (Query(phases.BEHIND_FLUX, legend="{topic}/{partition} ({command})"),),
        "prometheus": (Query(phases.BEHIND_PROMETHEUS, legend="{topic}/{partition} ({command})"),),
    },
)
_PHASES = Panel(
    title="Batch phases",
    help="The mean time of a batch by Spark's phases; triggerExecution is the whole of one.",
    empty=_EMPTY,
    unit="s",
    queries={
        "flux": (Query(phases.FLUX, legend="{phase} ({command})"),),
        "influxql": (Query(phases.INFLUXQL, legend="{phase} ({command})"),),
        "prometheus": (Query(phases.PROMETHEUS, legend="{phase} ({command})"),),
    },
)
_READ = Panel(
    title="Records and batches a second",
    help="What the aggregator and the shipper read, and in how many batches.",
    empty=_EMPTY,
    unit="cps",
    step=True,
    queries=rates("input.records", "batches"),
)
_DEAD = Panel(
    title="Dead letters",
    help="Records and metrics that can't be taken, and records that changed nothing (stale), a second. The topic "
    "metrics-dead says why.",
    empty=_EMPTY,
    unit="cps",
    step=True,
    queries=rates("table.dead_letters", "table.stale"),
)
_TABLE = Panel(
    title="Table",
    help="Lives, living ones, their instances; identities of metrics; and rows, metrics of lives.",
    empty=_EMPTY,
    unit="short",
    queries=figures("table.lives", "table.living", "table.instances", "table.metrics", "table.rows"),
)
_STATE = Panel(
    title="State",
    help="The packed table, which every batch reads and writes, and the memory of Spark's state store.",
    empty=_EMPTY,
    unit="bytes",
    queries=figures("table.state_bytes", "state.memory_bytes"),
)
_POINTS = Panel(
    title="Points a second",
    help="Points that the shipper wrote.",
    empty=_EMPTY,
    unit="cps",
    step=True,
    queries=rates("ship.points"),
)
_LEFT_OUT = Panel(
    title="Left out by the shipper",
    help="Points that the store rejected permanently, unreadable records, and records of a replaced writer, a second.",
    empty=_EMPTY,
    unit="cps",
    step=True,
    queries=rates("ship.rejected", "ship.unreadable", "ship.stale"),
)

BOARD = Dashboard(
    name="pipeline",
    title="Pipeline",
    help="Aggregator and shipper: are they ready, do they keep up, what do they leave out.",
    variables=(),
    rows=(
        Row("Now", (_READY, _SINCE, _STORE, _EPOCH)),
        Row("Keeping up", (_AGE, _BEHIND, _PHASES, _READ)),
        Row("Table", (_DEAD, _TABLE, _STATE)),
        Row("Store", (_POINTS, _LEFT_OUT)),
    ),
    events={},
)
