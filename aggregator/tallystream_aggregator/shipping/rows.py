"""A life's row as points: what each instance says of itself. docs/stores.md shows the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import Field, Point
from tallystream_aggregator.sinks.tags import RESERVED, free

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.table.rows import LifeRow, MetricRow

PREFIX = "instance:"
"""Goes before a metric's name: a measurement of its own, so that no query adds instances to their sum."""

INTEGERS = ("count", "start", "position")
FLOATS = ("value", "sum", "min", "max", "mean_rate", "m1_rate", "m5_rate", "m15_rate")
_RESERVED = RESERVED | {"instance"}


def row_points(row: LifeRow) -> Iterator[Point]:
    """Yield a point for each metric that the life's newest snapshot had; its time is when that was heard.

    The life is a field and no tag: every restart would begin new series.
    """
    for metric in row.metrics:
        if metric.seq is None:  # others were in an earlier snapshot, and are points of its time
            tags = {free(name, _RESERVED): value for name, value in metric.tags.items()}
            tags |= {"app": row.app, "metric_type": metric.type, "instance": row.instance}
            yield Point(PREFIX + metric.name, tags, _fields(row, metric), row.heard_ms)


def _fields(row: LifeRow, metric: MetricRow) -> dict[str, Field]:
    fields: dict[str, Field] = {name: int(value) for name in INTEGERS if (value := getattr(metric, name)) is not None}
    fields |= {name: float(value) for name in FLOATS if (value := getattr(metric, name)) is not None}
    return fields | ({"life": row.life} if row.life else {})
