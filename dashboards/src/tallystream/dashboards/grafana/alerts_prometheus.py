"""What each alert rule measures in Prometheus: an expression by slug, to be compared with the rule's limit.

What Prometheus can't see is said by `absent`: a rule whose thing is missing altogether fires as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.dashboards.grafana.alerts_flux import PERIODS

if TYPE_CHECKING:
    from tallystream.dashboards.grafana.settings import Settings

_SUMS = '{metric_type=~"counter|meter",__name__=~".+_total",app!="tallystream"}'
_NAMED = f'label_replace({_SUMS},"metric","$1","__name__","(.+)_total")'
_TIME = {
    "aggregator-down": 'tallystream_batch_time_seconds{command="aggregate",metric_type=""}',
    "collector-down": "tallystream_lag_round_time_seconds",
}
"""What says when something was last done, epoch seconds."""


def expressions(settings: Settings) -> dict[str, str]:
    """Return the expression of every rule, by slug."""
    minutes = settings.thresholds.stopped_minutes
    grown = f"sum by (app, metric) (increase({_NAMED}[{minutes}m:30s]))"
    return {
        "instance-silent": (
            'max by (app) (max_over_time(tallystream_living_instances{app!="tallystream"}[1h])) '
            '- max by (app) (tallystream_living_instances{app!="tallystream"})'
        ),
        "sum-stopped": (
            f"({grown} == bool 0) * on (app, metric) "
            f"max_over_time((min_over_time({grown}[{5 * minutes}m:{minutes}m]) > bool 0)"
            f"[{PERIODS * minutes}m:{minutes}m])"
        ),
        "lag-verdict": 'max by (group, verdict) (tallystream_group_verdict{verdict=~"ERR|STOP|STALL|REWIND"})',
        "lag-seconds": "max by (group) (kafka_consumergroup_group_max_lag_seconds)",
        "sink-behind": 'max by (group) (kafka_consumergroup_group_max_lag_seconds{group=~".*tallystream-shipper"})',
        "dead-letters": 'sum(increase(tallystream_table_dead_letters_total{metric_type=""}[10m]))',
        "processed-twice": (
            f"sum by (app, metric) ({_NAMED}) "
            f"- sum by (app, metric) ({_position('total')}) + sum by (app, metric) ({_position('start')})"
        ),
        **{slug: f"time() - max({name})" for slug, name in _TIME.items()},
        "clock-skew": "max by (group) (abs(tallystream_lag_skew_seconds))",
    }


def absences() -> dict[str, str]:
    """Return, by slug, the expression that is true where the thing that has to be seen is missing."""
    return {slug: f"absent({name})" for slug, name in _TIME.items()}


def _position(end: str) -> str:
    selector = f'{{metric_type="position",__name__=~".+_position_{end}"}}'
    return f'label_replace({selector},"metric","$1","__name__","(.+)_position_{end}")'
