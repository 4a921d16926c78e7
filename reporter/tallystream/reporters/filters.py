"""Filters for the metrics and attributes to report, and for their units."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from tallystream.errors import ConfigError
from tallystream.record import METRIC_TYPES, Metric, Timer

Values = dict[str, float]

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    str(kind.__struct_config__.tag): tuple(
        field for field in kind.__struct_fields__ if field not in ("name", "tags", "sketch", "bounds", "counts")
    )
    for kind in METRIC_TYPES
}
"""The attributes of each metric type, as named in the record."""

RATE_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
DURATION_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6}
_DURATIONS = frozenset({"sum", "min", "max", "mean", "stddev", "p50", "p75", "p95", "p98", "p99", "p999"})


class MetricFilter(msgspec.Struct, frozen=True):
    """Selects metrics whose name matches a pattern of `include` and none of `exclude` (shell patterns: `*`, `?`).

    Raises:
        ConfigError: a pattern is empty, or a string was given instead of a list.
    """

    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, patterns in (("include", self.include), ("exclude", self.exclude)):
            if isinstance(patterns, str) or not all(patterns):
                raise ConfigError(name, patterns, 'give a list of patterns, such as ["orders.*"]')

    def selects(self, name: str) -> bool:
        """Return whether a metric of this name is selected."""
        return _matches(name, self.include) and not _matches(name, self.exclude)

    def apply(self, metrics: list[Metric]) -> list[Metric]:
        """Return the selected metrics."""
        if self.exclude or tuple(self.include) != ("*",):
            return [metric for metric in metrics if self.selects(metric.name)]
        return metrics


class AttributeFilter(msgspec.Struct, frozen=True):
    """Selects attributes and their units: rates per second, minute or hour; durations in s, ms or us.

    Raises:
        ConfigError: a unit or attribute does not exist.
    """

    attributes: Sequence[str] | None = None
    rate_unit: str = "second"
    duration_unit: str = "s"

    def __post_init__(self) -> None:
        if self.rate_unit not in RATE_UNITS:
            raise ConfigError("rate_unit", self.rate_unit, f"use one of {', '.join(RATE_UNITS)}")
        if self.duration_unit not in DURATION_UNITS:
            raise ConfigError("duration_unit", self.duration_unit, f"use one of {', '.join(DURATION_UNITS)}")
        known = sorted({attribute for names in ATTRIBUTES.values() for attribute in names})
        for attribute in self.attributes or ():
            if attribute not in known:
                raise ConfigError("attributes", attribute, f"use some of {', '.join(known)}")

    def values(self, metric: Metric) -> Values:
        """Return the selected attributes that have a value, by name, in the selected units."""
        selected = {}
        for attribute in ATTRIBUTES[metric.type]:
            value = getattr(metric, attribute)
            if value is None or (self.attributes is not None and attribute not in self.attributes):
                continue
            if attribute.endswith("_rate"):
                value *= RATE_UNITS[self.rate_unit]
            elif attribute in _DURATIONS and isinstance(metric, Timer):
                value *= DURATION_UNITS[self.duration_unit]
            selected[attribute] = value
        return selected


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
