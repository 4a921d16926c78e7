"""What each alert rule measures in Prometheus: an expression by slug, to be compared with the rule's limit.

What Prometheus can't see is said by `absences`: a rule whose thing is missing altogether fires as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.grafana.alerts.flux import PERIODS

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Settings

_SUMS = '{metric_type=~"counter|meter",__name__=~".+_total",app!="tallystream"}'
_NAMED = f'label_replace({_SUMS},"metric","$1","__name__","(.+)_total")'
_AGGREGATOR = '{command="aggregate",metric_type=""}'
_READY = f"tallystream_ready{_AGGREGATOR} == 1"
_ROUND = "tallystream_lag_round_time_seconds"


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
        "lag-status": 'max by (group, status) (tallystream_group_status{status=~"ERR|STOP|STALL|REWIND"})',
        "lag-seconds": "max by (group) (kafka_consumergroup_group_max_lag_seconds)",
        "sink-behind": 'max by (group) (kafka_consumergroup_group_max_lag_seconds{group=~".*tallystream-shipper"})',
        "dead-letters": 'sum(increase(tallystream_table_dead_letters_total{metric_type=""}[10m]))',
        "processed-twice": (
            f"sum by (app, metric) ({_NAMED}) "
            f"- sum by (app, metric) ({_position('total')}) + sum by (app, metric) ({_position('start')})"
        ),
        # One that starts or stands by has not looked for anything: it does not count.
        "aggregator-down": f"min(tallystream_last_check_age_seconds{_AGGREGATOR} and {_READY})",
        "collector-down": f"time() - max({_ROUND})",
        "clock-skew": "max by (group) (abs(tallystream_lag_skew_seconds))",
    }


def absences(settings: Settings) -> dict[str, str]:
    """Return, by slug, the expression that is true where the thing that has to be seen has been missing for so long."""
    limits = settings.thresholds
    return {
        "aggregator-down": f"absent_over_time(({_READY})[{limits.aggregator_seconds}s:15s])",
        "collector-down": f"absent_over_time({_ROUND}[{limits.collector_seconds}s])",
    }


def _position(end: str) -> str:
    selector = f'{{metric_type="position",__name__=~".+_position_{end}"}}'
    return f'label_replace({selector},"metric","$1","__name__","(.+)_position_{end}")'
