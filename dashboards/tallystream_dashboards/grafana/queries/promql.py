"""PromQL as the panels need it: sums as the shipper exposes them, and the figures of /metrics.

A sum has the label `metric_type`; the figures of the aggregator's and the shipper's own /metrics have not, which tells
them from the same figures as sums of the app tallystream.
"""

from __future__ import annotations

APP = 'app=~"$app"'
COUNTED = 'metric_type=~"counter|meter|histogram|timer"'
RATE = "[$__rate_interval]"

COUNTS = f'{{__name__=~"($metric)(_total|_count)",{APP},{COUNTED}}}'
"""Counts of the chosen metrics and apps."""


def named(selector: str) -> str:
    """Return what is selected with its name as the label `metric`, which functions and sums would drop."""
    return f'label_replace({selector},"metric","$1","__name__","(.+?)(_total|_count)?")'


def own(name: str, *, labels: tuple[str, ...] = ("command",)) -> str:
    """Return a figure of the aggregator's or the shipper's own."""
    return f'max by ({", ".join(labels)}) ({name}{{metric_type=""}})'


def own_rate(name: str, *, labels: tuple[str, ...] = ("command",)) -> str:
    """Return how fast a count of the aggregator's or the shipper's own grows, per second."""
    return f'sum by ({", ".join(labels)}) (rate({name}{{metric_type=""}}{RATE}))'
