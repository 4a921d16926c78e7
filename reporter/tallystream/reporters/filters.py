"""Filters for the metrics and attributes to report."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

import msgspec

from tallystream.errors import ConfigError
from tallystream.record import METRIC_TYPES, Metric

Values = dict[str, float]

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    str(kind.__struct_config__.tag): tuple(
        field for field in kind.__struct_fields__ if field not in ("name", "tags", "sketch", "bounds", "counts")
    )
    for kind in METRIC_TYPES
}
"""The attributes of each metric type, as named in the record."""


class MetricFilter(msgspec.Struct, frozen=True):
    """Selects metrics whose name matches a pattern of `include` and none of `exclude` (shell patterns: `*`, `?`).

    Raises:
        ConfigError: it is no list, tuple or set of patterns, or one of them is empty or no text.
    """

    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, patterns in (("include", self.include), ("exclude", self.exclude)):
            if not _is_list(patterns) or not all(isinstance(pattern, str) and pattern for pattern in patterns):
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
    """Selects attributes; None selects all.

    Raises:
        ConfigError: it is no list, tuple or set, or an attribute does not exist.
    """

    attributes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        known = sorted({attribute for names in ATTRIBUTES.values() for attribute in names})
        remedy = f"give a list of some of {', '.join(known)}"
        if self.attributes is not None and not _is_list(self.attributes):
            raise ConfigError("attributes", self.attributes, remedy)
        for attribute in self.attributes or ():
            if attribute not in known:
                raise ConfigError("attributes", attribute, remedy)

    def values(self, metric: Metric) -> Values:
        """Return the selected attributes that have a value, by name."""
        return {
            attribute: value
            for attribute in ATTRIBUTES[metric.type]
            if (self.attributes is None or attribute in self.attributes)
            and (value := getattr(metric, attribute)) is not None
        }


def _is_list(texts: object) -> bool:
    return isinstance(texts, Collection) and not isinstance(texts, str)  # an iterator can be read only once


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
