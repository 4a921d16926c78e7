"""The values of a sample and their percentiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.metrics.sampling import quantile

if TYPE_CHECKING:
    from collections.abc import Iterable


class Snapshot:
    """Sorted values, in `values`."""

    MEDIAN = 0.5
    P75_Q = 0.75
    P95_Q = 0.95
    P99_Q = 0.99
    P999_Q = 0.999

    def __init__(self, values: Iterable[float]) -> None:
        self.values = sorted(values)

    def get_size(self) -> int:
        """Return the number of values."""
        return len(self.values)

    def get_median(self) -> float:
        """Return the 50th percentile."""
        return self.get_percentile(self.MEDIAN)

    def get_75th_percentile(self) -> float:
        """Return the 75th percentile."""
        return self.get_percentile(self.P75_Q)

    def get_95th_percentile(self) -> float:
        """Return the 95th percentile."""
        return self.get_percentile(self.P95_Q)

    def get_99th_percentile(self) -> float:
        """Return the 99th percentile."""
        return self.get_percentile(self.P99_Q)

    def get_999th_percentile(self) -> float:
        """Return the 99.9th percentile."""
        return self.get_percentile(self.P999_Q)

    def get_percentile(self, percentile: float) -> float:
        """Return the value at a share from 0 to 1, interpolated between two values (`quantile`); 0 without values.

        Raises:
            ValueError: the share is not from 0 to 1.
        """
        if not 0 <= percentile <= 1:
            raise ValueError(f"{percentile} is not in [0..1]")
        return quantile(self.values, percentile) if self.values else 0
