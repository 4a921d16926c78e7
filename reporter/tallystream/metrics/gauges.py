"""Functions that compute gauges from other metrics: `registry.gauge("hit.ratio", ratio(hits, lookups))`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.metrics.counter import Counter, UpDownCounter
from tallystream.metrics.gauge import Gauge
from tallystream.metrics.histogram import Histogram
from tallystream.metrics.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Callable

    Source = Counter | UpDownCounter | Gauge | Meter | Histogram | Callable[[], float | None]


def derived(source: Source, transform: Callable[[float], float | None]) -> Callable[[], float | None]:
    """Return a function for a gauge: `transform` applied to the source's value, or None if the source has no value.

    Args:
        source: a gauge or updown (its value), a counter, meter, histogram or timer (its count), or any function.
        transform: a function of that value.
    """
    read = _reader(source)

    def compute() -> float | None:
        value = read()
        return None if value is None else transform(value)

    return compute


def ratio(numerator: Source, denominator: Source) -> Callable[[], float | None]:
    """Return a function for a gauge: one value divided by another, or None if one is missing or the divisor is 0.

    Args:
        numerator: as `source` of `derived`.
        denominator: as `source` of `derived`.
    """
    above, below = _reader(numerator), _reader(denominator)

    def compute() -> float | None:
        # The divisor is read last, so that of two counts that grow together, it is not the older one.
        top = above()
        bottom = below()
        return None if top is None or not bottom else top / bottom

    return compute


def _reader(source: Source) -> Callable[[], float | None]:
    if isinstance(source, Gauge | UpDownCounter):
        return lambda: source.value
    if isinstance(source, Counter | Meter | Histogram):
        return lambda: source.count
    return source
