"""Subtraction and addition of metric values: a later life publishes what earlier lives have not, a reset adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tallystream import record
from tallystream.metric_types import HIGHEST, LOWEST, TOTAL, TYPES
from tallystream.metrics.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Values = dict[record.Identity, record.Metric]

_EXTREMES = {LOWEST: min, HIGHEST: max}


def by_identity(metrics: Iterable[record.Metric]) -> Values:
    """Return the metrics by identity."""
    return {metric.identity: metric for metric in metrics}


def subtract(metrics: list[record.Metric], base: Mapping[record.Identity, record.Metric]) -> list[record.Metric]:
    """Return the metrics minus `base`: the counts and sums of what came after it.

    Gauges, up-down counters, rates and the local view are current values, and min and max are those of the whole
    process: they stay unchanged. Positions stay unchanged too, since the table takes the lowest start and the highest
    position of all lives; only a position that was reported under another app before starts where that one ended.
    """
    return [_subtracted(metric, base.get(metric.identity)) for metric in metrics] if base else metrics


def _subtracted(metric: record.Metric, base: record.Metric | None) -> record.Metric:
    if isinstance(base, record.Position) and isinstance(metric, record.Position):
        return msgspec.structs.replace(metric, start=max(metric.start, base.position))
    rest = _combined(metric, base, -1)
    if isinstance(rest, record.Histogram) and rest.count == 0:
        return msgspec.structs.replace(rest, sum=0.0, min=None, max=None, sketch=None)
    return rest


def add(metric: record.Metric, earlier: record.Metric | None) -> record.Metric:
    """Return the metric with the counts, sums, sketches and extremes of `earlier` added."""
    return widen(_combined(metric, earlier, 1), earlier)


def widen(metric: record.Metric, earlier: record.Metric | None) -> record.Metric:
    """Return the metric with the extremes of `earlier` too: the lowest of both, and the highest of both."""
    if earlier is None or earlier.__class__ is not metric.__class__:
        return metric
    changed = {}
    for name, adds in TYPES[metric.type]:
        if adds in _EXTREMES:
            known = [value for value in (getattr(metric, name), getattr(earlier, name)) if value is not None]
            changed[name] = _EXTREMES[adds](known, default=None)
    return msgspec.structs.replace(metric, **changed) if changed else metric


def _combined(metric: record.Metric, other: record.Metric | None, sign: int) -> record.Metric:
    if other is None or other.__class__ is not metric.__class__:
        return metric
    names = (name for name, adds in TYPES[metric.type] if adds == TOTAL)
    changed: dict[str, Any] = {name: _added(getattr(metric, name), getattr(other, name), sign) for name in names}
    if isinstance(other, record.Histogram) and isinstance(metric, record.Histogram):
        changed["sketch"] = _combined_sketch(metric.sketch, other.sketch, sign)
    return msgspec.structs.replace(metric, **changed) if changed else metric


def _added(one: float | None, other: float | None, sign: int) -> float | None:
    return None if one is None or other is None else one + sign * other


def _combined_sketch(one: record.Sketch | None, other: record.Sketch | None, sign: int) -> record.Sketch | None:
    if other is None:
        return one
    sketch = Sketch.decode(one) if one else Sketch()
    sketch.merge(Sketch.decode(other), sign)
    return sketch.encode()
