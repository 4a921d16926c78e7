"""A sum as a point: what queries and dashboards see. docs/stores.md shows the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import Field, Point
from tallystream_aggregator.sinks.tags import free

if TYPE_CHECKING:
    from tallystream_aggregator.sums import Sum

INTEGERS = ("count", "number", "start", "position")
FLOATS = (
    *("sum", "min", "max", "mean"),
    *("mean_rate", "m1_rate", "m5_rate", "m15_rate"),
    *("p50", "p75", "p95", "p98", "p99", "p999"),
)
ALWAYS = ("lives", "instances", "retired")


def point(row: Sum) -> Point:
    """Return the point of a sum: measurement = name, tags = its tags with `app` and `metric_type`, time = the table's.

    Each field has one type for ever, since InfluxDB refuses a second one: counts are integers, everything else floats.
    """
    fields: dict[str, Field] = {name: int(value) for name in INTEGERS if (value := getattr(row, name)) is not None}
    fields |= {name: float(value) for name in FLOATS if (value := getattr(row, name)) is not None}
    fields |= {name: int(getattr(row, name)) for name in ALWAYS}
    if row.overflow:
        fields["overflow"] = True
    tags = {free(name): value for name, value in row.tags.items()}
    return Point(row.name, {**tags, "app": row.app, "metric_type": row.type}, fields, row.ts)
