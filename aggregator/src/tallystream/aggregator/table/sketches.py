"""Quantiles over all lives, from merged DDSketches (rule 7): which sketch is taken, and what many of them say together.

State keeps a sketch as the record had it, in base64. It is decoded when it is taken, since it must agree with the
metric's count, and when a metric that was touched is published. Measured on one core, with 1,000 lives of one histogram
whose sketches have 230 bins (620 characters): 64 ms to take 1,000 sketches, 84 ms to publish their quantiles, whether
one of the lives was touched or all, 0.3 ms to fold a life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.reporter.record import Histogram, Metric
from tallystream.reporter.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.aggregator.table.kinds import Totals, Value

SKETCHED = frozenset({"histogram", "timer"})
SHARES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
MAX_SKETCH = 65_536
"""Characters of an encoded sketch: more than one with all its bins full can have."""

Part = tuple["Value", str | None]
"""What a life, or the base, counted, and its sketch."""


def taken(metric: Metric) -> str | None:
    """Return the metric's sketch, None where it has none.

    Raises:
        ValueError: it is too large, can't be read, or stands for another number of values than the metric's count.
    """
    if not isinstance(metric, Histogram) or metric.sketch is None:
        return None
    size = len(metric.sketch)
    if size > MAX_SKETCH:
        raise ValueError(f"limit: the sketch has {size} characters, {MAX_SKETCH} at most are taken")
    try:
        count = Sketch.decode(metric.sketch).count
    except ValueError as error:
        raise ValueError(f"the sketch can't be read: {error}") from error
    if count != metric.count:
        raise ValueError(f"the sketch stands for {count} values and the count is {metric.count}")
    return metric.sketch


def merge(parts: Iterable[Part]) -> Sketch | None:
    """Return the sketch of everything that was counted, None where a part that counted something has none.

    The result is the same whatever the order of the parts, and whichever of them were merged before.
    """
    texts: list[str] = []
    for count, text in parts:
        if text is not None:
            texts.append(text)
        elif count:
            return None
    merged = Sketch()
    for text in texts:
        merged.merge(Sketch.decode(text))
    return merged


def quantiles(parts: Iterable[Part]) -> Totals:
    """Return p50 to p999 of everything that was counted; nothing where a sketch is missing, or nothing was counted.

    Each is within 1 % of the value with the rank floor(share * (count - 1)).
    """
    merged = merge(parts)
    if merged is None or not merged.count:
        return {}
    return dict(zip(SHARES, merged.quantiles(list(SHARES.values())), strict=True))
