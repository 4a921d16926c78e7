"""What a reporter reports: a registry, or the face of another library that has one behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tallystream.errors import ConfigError
from tallystream.registry import MetricRegistry

if TYPE_CHECKING:
    from typing import Any


@runtime_checkable
class Reportable(Protocol):
    """The registry of another library, such as `pyformance_compat.MetricsRegistry`."""

    @property
    def tallystream(self) -> MetricRegistry:
        """The registry that reports its metrics."""


def registry_of(given: MetricRegistry | Reportable | Any) -> MetricRegistry:
    """Return the registry to report.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(given, MetricRegistry):
        return given
    if isinstance(given, Reportable):
        return given.tallystream
    raise ConfigError("registry", given, "give a MetricRegistry, or pyformance_compat's MetricsRegistry")
