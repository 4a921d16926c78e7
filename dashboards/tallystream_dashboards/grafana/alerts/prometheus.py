"""The alert rules for Prometheus: an expression for each, and a rules file ("Alerting rules", prometheus.io/docs)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.alerts.flux import PERIODS
from tallystream_dashboards.grafana.alerts.rules import GROUP, INTERVAL_S, RULES, Rule

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Settings

_SUMS = '{metric_type=~"counter|meter",__name__=~".+_total",app!="tallystream"}'
_COUNTERS = '{metric_type="counter",__name__=~".+_total"}'
_AGGREGATOR = '{command="aggregate",metric_type=""}'
_READY = f"tallystream_ready{_AGGREGATOR} == 1"
_ROUND = "tallystream_lag_round_time_seconds"


def expressions(settings: Settings) -> dict[str, str]:
    """Return the expression of every rule by slug; its result is compared with the rule's limit."""
    minutes = settings.thresholds.stopped_minutes
    grown = f"sum by (app, metric) (increase({_named(_SUMS)}[{minutes}m:30s]))"
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
            f"sum by (app, metric) ({_named(_COUNTERS)}) "
            f"- sum by (app, metric) ({_position('total')}) + sum by (app, metric) ({_position('start')})"
        ),
        # An aggregator that starts or stands by is not ready, so it does not count.
        "aggregator-down": f"min(tallystream_published_age_seconds{_AGGREGATOR} and {_READY})",
        "collector-down": f"time() - max({_ROUND})",
        "clock-skew": "max by (group) (abs(tallystream_lag_skew_seconds))",
    }


def rules_file(settings: Settings) -> dict[str, Any]:
    """Return the content of the rules file."""
    measured, missing = expressions(settings), _absences(settings)
    rules = [_rule(rule, measured[rule.slug], missing.get(rule.slug), settings) for rule in RULES]
    return {"groups": [{"name": GROUP, "interval": f"{INTERVAL_S}s", "rules": rules}]}


def alert_name(rule: Rule) -> str:
    """Return the name of the alert, as in TallystreamLagStatus."""
    return "Tallystream" + rule.title.title().replace(" ", "")


def _rule(rule: Rule, expression: str, absence: str | None, settings: Settings) -> dict[str, Any]:
    limit = rule.limit(settings.thresholds)
    return {
        "alert": alert_name(rule),
        "expr": f"({expression}) > {limit:g}" + (f" or {absence}" if absence else ""),
        "for": f"{rule.for_s}s",
        "labels": rule.routing_labels(),
        "annotations": rule.annotations(settings, value='{{ printf "%.0f" $value }}', label="{{ $labels.NAME }}"),
    }


def _absences(settings: Settings) -> dict[str, str]:
    """Return, by slug, expressions that are true if series of a rule have been missing for as long as its limit."""
    limits = settings.thresholds
    return {
        "aggregator-down": f"absent_over_time(({_READY})[{limits.aggregator_seconds}s:15s])",
        "collector-down": f"absent_over_time({_ROUND}[{limits.collector_seconds}s])",
    }


def _position(end: str) -> str:
    return _named(f'{{metric_type="position",__name__=~".+_position_{end}"}}', f"_position_{end}")


def _named(selector: str, end: str = "_total") -> str:
    """Return the selected series with their name, without its `end`, as the label `metric`."""
    return f'label_replace({selector},"metric","$1","__name__","(.+){end}")'
