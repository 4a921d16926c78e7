"""The dashboard Metric: one metric, whole."""

from __future__ import annotations

from tallystream_dashboards.grafana.dashboards import variables
from tallystream_dashboards.grafana.model.dashboard import Dashboard, Row
from tallystream_dashboards.grafana.model.panel import Panel
from tallystream_dashboards.grafana.model.query import Queries, Query
from tallystream_dashboards.grafana.queries import duplicates, flux, influxql, promql

_COUNT = f'{flux.SUMS} and r._field == "count"'
_LABELS = ("app",)
_WHERE = influxql.APP
_EMPTY = "No sum of this metric: choose another metric or app above, or a longer time."
_NO_SKETCH = "No quantiles: only histograms and timers have them, and only where every life sent its sketch."
_QUANTILES = ("p50", "p75", "p95", "p98", "p99", "p999")
_VIEW = ("sum", "min", "mean", "max")
_OWN_RATES = ("m1_rate", "m5_rate", "m15_rate")
_GAUGE_TYPES = 'metric_type=~"gauge|updown"'


def _lines(fields: tuple[str, ...], *, flux_where: str = "", ql_where: str = "", fn: str = "max") -> Queries:
    """Return a line for each field."""
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
    help="The absolute sum over all instances that ever were, by app; in InfluxQL a line for each series.",
    empty=_EMPTY,
    unit="short",
    queries={
        "flux": (Query(flux.total(_COUNT, labels=_LABELS), legend="{app}"),),
        "influxql": (Query(influxql.held(influxql.SUMS, where=_WHERE)),),
        "prometheus": (Query(f"sum by (app) ({promql.COUNTS})", legend="{app}"),),
    },
)

_RATE = Panel(
    title="Rate",
    help="How fast the sum grows: the difference of its absolute values by the seconds between them.",
    empty=_EMPTY,
    unit="cps",
    step=True,
    queries={
        "flux": (Query(flux.total(_COUNT, flux.RATE, labels=_LABELS), legend="{app}"),),
        "influxql": (Query(influxql.rate(influxql.SUMS, where=_WHERE, labels=_LABELS), legend="{app}"),),
        "prometheus": (Query(f"sum by (app) (rate({promql.COUNTS}[$__rate_interval]))", legend="{app}"),),
    },
)

_LIVING = Panel(
    title="Living instances",
    help="Living instances and living lives that have the metric; in Prometheus, instances of the app. Restarts are "
    "marks.",
    empty=_EMPTY,
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
    help="Lives that were silent for long: their rows were dropped, their counts stay in the sum.",
    empty=_EMPTY,
    unit="none",
    queries={
        **_lines(("retired",)),
        "prometheus": (Query(f"max by (app) (tallystream_retired_lives{{{promql.APP}}})", legend="{app}"),),
    },
)

_GAUGE = Panel(
    title="Gauge",
    help="Of a gauge or up-down counter: sum, least, mean and largest value of the living instances.",
    empty="No gauge of this name: choose a gauge or an up-down counter above.",
    unit="short",
    queries={
        **_lines(
            _VIEW,
            flux_where=" and r.metric_type =~ /^(gauge|updown)$/",
            ql_where=' AND "metric_type" =~ /^(gauge|updown)$/',
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
    help="Of all instances together, from their merged sketches (1 % relative error); percentiles are never averaged.",
    empty=_NO_SKETCH,
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
    help="Of a meter or timer: exponentially weighted over 1, 5 and 15 minutes, summed over the living instances.",
    empty="No such rates: only meters and timers have them.",
    unit="cps",
    queries={
        **_lines(_OWN_RATES, fn="sum"),
        "prometheus": tuple(
            Query(f'sum by (app) ({{__name__="${{metric}}_{name}",{promql.APP}}})', legend=f"{name} of {{app}}")
            for name in _OWN_RATES
        ),
    },
)

_DUPLICATES = Panel(
    title="Processed twice",
    help="Everything processed less the offsets that the positions cover (NAME.position beside the counter NAME).",
    empty="No positions of this counter: count with ConsumerProgress, or registry.position(topic, partition, "
    "name='NAME.position').",
    unit="none",
    queries={
        "flux": (Query(duplicates.FLUX, legend="{app}"),),
        "prometheus": (Query(duplicates.PROMETHEUS, legend="{app}"),),
    },
)

BOARD = Dashboard(
    name="metric",
    title="Metric",
    help="One metric: its sum, rate, living instances, restarts and quantiles.",
    variables=(variables.APP, variables.METRIC),
    rows=(
        Row("Sum", (_TOTAL, _RATE, _LIVING, _RETIRED)),
        Row("Values", (_GAUGE, _QUANTILE, _OWN, _DUPLICATES)),
    ),
    events={"flux": variables.EVENTS_FLUX, "influxql": variables.EVENTS_INFLUXQL},
)
