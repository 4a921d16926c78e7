"""What a later life publishes: the value of the whole process minus what was acknowledged in earlier lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream import record
from tallystream.metrics.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Mapping

Values = dict[record.Identity, record.Metric]


def identity_of(metric: record.Metric) -> record.Identity:
    """Return the metric's identity, by which it is summed."""
    return record.identity(metric.name, metric.type, metric.tags)


def by_identity(metrics: list[record.Metric]) -> Values:
    """Return the metrics by identity."""
    return {identity_of(metric): metric for metric in metrics}


def since(metrics: list[record.Metric], base: Mapping[record.Identity, record.Metric]) -> list[record.Metric]:
    """Return the metrics minus `base`: the counts and sums of what came after it.

    Gauges, up-down counters, rates and the local view are current values, and min and max are those of the whole
    process: they stay unchanged. Positions stay unchanged too, since the table takes the lowest start and the highest
    position of all lives; only a position that was reported under another app before starts where that one ended.
    """
    return [_less(metric, base.get(identity_of(metric))) for metric in metrics] if base else metrics


def until(metrics: list[record.Metric], base: Mapping[record.Identity, record.Metric]) -> list[record.Metric]:
    """Return the metrics of a life plus its base: the inverse of `since`, except for positions and extremes."""
    return [_moved(metric, base.get(identity_of(metric)), 1) for metric in metrics]


def _less(metric: record.Metric, base: record.Metric | None) -> record.Metric:
    moved = _moved(metric, base, -1)
    if isinstance(moved, record.Histogram) and moved.count == 0:
        return msgspec.structs.replace(moved, sum=0.0, min=None, max=None, sketch=None)
    return moved


def _moved(metric: record.Metric, base: record.Metric | None, sign: int) -> record.Metric:
    if isinstance(base, record.Histogram) and isinstance(metric, record.Histogram):
        return msgspec.structs.replace(
            metric,
            count=metric.count + sign * base.count,
            sum=metric.sum + sign * base.sum,
            sketch=_moved_sketch(metric.sketch, base.sketch, sign),
        )
    if isinstance(base, record.Counter | record.Meter) and isinstance(metric, record.Counter | record.Meter):
        return msgspec.structs.replace(metric, count=metric.count + sign * base.count)
    if isinstance(base, record.Position) and isinstance(metric, record.Position) and sign < 0:
        return msgspec.structs.replace(metric, start=max(metric.start, base.position))
    return metric


def _moved_sketch(now: record.Sketch | None, base: record.Sketch | None, sign: int) -> record.Sketch | None:
    if base is None:
        return now
    sketch = Sketch.decode(now) if now else Sketch()
    if sign > 0:
        sketch.merge(Sketch.decode(base))
    else:
        sketch.subtract(Sketch.decode(base))
    return sketch.encode()
