"""PromQL for the panels: sums as the shipper exposes them, and the internal metrics of docs/configuration.md.

A sum has the label `metric_type`. The internal metrics on the aggregator's and the shipper's own /metrics do not have
it, which distinguishes them from the sums of the same metrics of the app tallystream. In InfluxDB, internal metrics are
those that both commands report to the topic `metrics` (without --no-own-metrics).
"""

from __future__ import annotations

APP = 'app=~"$app"'

COUNTS = f'{{__name__=~"($metric)(_total|_count)",{APP},metric_type=~"counter|float_counter|meter|histogram|timer"}}'
"""The counts of the selected metrics and apps."""


def with_metric_label(selector: str) -> str:
    """Return the selected series with their name as the label `metric`: functions and sums drop the name."""
    return f'label_replace({selector},"metric","$1","__name__","(.+?)(_total|_count)?")'


def internal_metric(name: str, *, labels: tuple[str, ...] = ("command",)) -> str:
    """Return an internal metric, by the labels."""
    return f'max by ({", ".join(labels)}) ({name}{{metric_type=""}})'


def internal_rate(name: str) -> str:
    """Return the growth per second of an internal metric, by command."""
    return f'sum by (command) (rate({name}{{metric_type=""}}[$__rate_interval]))'
