"""The dashboard Metric: everything about one metric."""

from __future__ import annotations

from tallystream_dashboards.grafana.dashboards import variables
from tallystream_dashboards.grafana.model.dashboard import Dashboard, Row
from tallystream_dashboards.grafana.model.panel import Panel, Queries, Query, queries
from tallystream_dashboards.grafana.queries import flux, influxql, promql

_COUNT = f'{flux.SUMS} and r._field == "count"'
_LABELS = ("app",)
_WHERE = influxql.APP
_NO_DATA = "No sum of this metric: select another metric or app above, or a longer time."
_NO_SKETCH = "No quantiles: only histograms and timers have them, and only if every life sent its sketch."
_QUANTILES = ("p50", "p75", "p95", "p98", "p99", "p999")
_VIEW = ("sum", "min", "mean", "max")
_OWN_RATES = ("m1_rate", "m5_rate", "m15_rate")
_GAUGE_TYPES = 'metric_type=~"gauge|updown"'


def _lines(fields: tuple[str, ...], *, flux_where: str = "", ql_where: str = "", fn: str = "max") -> Queries:
    """Return the queries of a line for each field."""
    return {
        "flux": tuple(
            Query(
                flux.line(f'{flux.SUMS} and r._field == "{name}"{flux_where}', labels=_LABELS, fn=fn),
                legend=f"{name} of {{app}}",
            )
            for name in fields
        ),
        "influxql": tuple(
            Query(
                influxql.line(influxql.SUMS, name, where=_WHERE + ql_where, labels=_LABELS, fn=fn),
                legend=f"{name} of {{app}}",
            )
            for name in fields
        ),
    }


_TOTAL = Panel(
    title="Sum",
    description="The absolute sum over all instances that ever reported, by app. In InfluxQL, a line for each series.",
    no_value=_NO_DATA,
    unit="short",
    queries={
        "flux": (Query(flux.total(_COUNT, labels=_LABELS), legend="{app}"),),
        "influxql": (Query(influxql.series(influxql.SUMS, where=_WHERE)),),
        "prometheus": (Query(f"sum by (app) ({promql.COUNTS})", legend="{app}"),),
    },
)

_RATE = Panel(
    title="Rate",
    description="How fast the sum grows: the difference between two absolute values, divided by the seconds between "
    "them.",
    no_value=_NO_DATA,
    unit="cps",
    step=True,
    queries=queries(
        legend="{app}",
        flux=flux.total(_COUNT, flux.RATE, labels=_LABELS),
        influxql=influxql.rate(influxql.SUMS, where=_WHERE, labels=_LABELS),
        prometheus=f"sum by (app) (rate({promql.COUNTS}[$__rate_interval]))",
    ),
)

_LIVING = Panel(
    title="Living instances",
    description="Living instances and living lives that have the metric. In Prometheus, those of the app. Annotations "
    "mark restarts.",
    no_value=_NO_DATA,
    unit="none",
    queries={
        **_lines(("instances", "lives")),
        "prometheus": (
            Query(f"max by (app) (tallystream_living_instances{{{promql.APP}}})", legend="instances of {app}"),
            Query(f"max by (app) (tallystream_living_lives{{{promql.APP}}})", legend="lives of {app}"),
        ),
    },
)

_RETIRED = Panel(
    title="Forgotten lives",
    description="Lives that were silent for a long time: their rows were deleted, their counts stay in the sum.",
    no_value=_NO_DATA,
    unit="none",
    queries={
        **_lines(("retired",)),
        "prometheus": (Query(f"max by (app) (tallystream_retired_lives{{{promql.APP}}})", legend="{app}"),),
    },
)

_GAUGE = Panel(
    title="Gauge",
    description="The sum, minimum, mean and maximum of a gauge or up-down counter over the living instances. In Flux "
    "and InfluxQL also the sum of a float counter.",
    no_value="No gauge of this name: select a gauge or an up-down counter above.",
    unit="short",
    queries={
        **_lines(
            _VIEW,
            flux_where=" and r.metric_type =~ /^(gauge|updown|float_counter)$/",
            ql_where=' AND "metric_type" =~ /^(gauge|updown|float_counter)$/',
        ),
        "prometheus": tuple(
            Query(
                f'max by (app) ({{__name__="${{metric}}{end}",{promql.APP},{_GAUGE_TYPES}}})',
                legend=f"{name} of {{app}}",
            )
            for name, end in zip(_VIEW, ("", "_min", "_mean", "_max"), strict=True)
        ),
    },
)

_QUANTILE = Panel(
    title="Quantiles",
    description="Quantiles over all instances, from their merged sketches (1.1 % relative error). Percentiles are not "
    "averaged.",
    no_value=_NO_SKETCH,
    unit="short",
    queries={
        **_lines(_QUANTILES),
        "prometheus": (
            Query(
                f'max by (app, quantile) ({{__name__=~"($metric)(_seconds)?",{promql.APP},quantile!=""}})',
                legend="{quantile} of {app}",
            ),
        ),
    },
)

_OWN = Panel(
    title="Rates as the instances report them",
    description="The exponentially weighted rates of a meter or timer over 1, 5 and 15 minutes, summed over the living "
    "instances.",
    no_value="No such rates: only meters and timers have them.",
    unit="cps",
    queries={
        **_lines(_OWN_RATES, fn="sum"),
        "prometheus": tuple(
            Query(f'sum by (app) ({{__name__="${{metric}}_{name}",{promql.APP}}})', legend=f"{name} of {{app}}")
            for name in _OWN_RATES
        ),
    },
)

# The formula is that of docs/metrics.md. A counter NAME and its positions NAME.position are set together, so their
# newest points belong together. InfluxQL can't compute across measurements.
_COVERED = r'(r._measurement =~ /^${metric:regex}\.position$/ and (r._field == "position" or r._field == "start"))'
_COUNTED = '(r._measurement =~ /^${metric:regex}$/ and r.metric_type == "counter" and r._field == "count")'

_DUPLICATES_FLUX = 'import "join"\n' + flux.total(
    f"({_COUNTED} or {_COVERED}) and {flux.APP}",
    # Leave out apps whose counter has no positions.
    "join.inner(right: covered, on: (l, r) => l.app == r.app, as: (l, r) => ({l with app: r.app}))",
    labels=("app",),
    map_change='map(fn: (r) => ({r with _value: if r._field == "position" then -r._value else r._value}))',
    definition="covered = "
    + flux.pipe(
        f"{flux.FROM}\n  |> range(start: date.sub(d: {flux.LOOKBACK}, from: v.timeRangeStop), stop: v.timeRangeStop)",
        f'filter(fn: (r) => {_COVERED} and {flux.APP} and r._field == "position")',
        "last()",
        'keep(columns: ["app"])',
        'group(columns: ["app"])',
        'distinct(column: "app")',
    ),
)

_DUPLICATES_PROMETHEUS = (
    f'sum by (app) ({{__name__=~"($metric)_total",{promql.APP},metric_type="counter"}}) '
    f'- sum by (app) ({{__name__=~"($metric)_position_total",{promql.APP}}}) '
    f'+ sum by (app) ({{__name__=~"($metric)_position_start",{promql.APP}}})'
)

_DUPLICATES = Panel(
    title="Processed twice",
    description="The count of processed records minus the offsets that the positions cover (NAME.position for the "
    "counter NAME).",
    no_value="No positions of this counter: count with ConsumerProgress, or registry.position(topic, partition, "
    "name='NAME.position').",
    unit="none",
    queries=queries(legend="{app}", flux=_DUPLICATES_FLUX, prometheus=_DUPLICATES_PROMETHEUS),
)

DASHBOARD = Dashboard(
    name="metric",
    title="Metric",
    description="One metric: its sum, rate, living instances, restarts and quantiles.",
    variables=(variables.APP, variables.METRIC),
    rows=(
        Row("Sum", (_TOTAL, _RATE, _LIVING, _RETIRED)),
        Row("Values", (_GAUGE, _QUANTILE, _OWN, _DUPLICATES)),
    ),
    events=variables.EVENTS,
)
