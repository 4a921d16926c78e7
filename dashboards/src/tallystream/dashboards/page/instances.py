"""Single instances, as the shipper writes them with `--rows`: a line for each. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.dashboards.page.lines import Line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.aggregator.sinks.base import Series

_OWN = {"app", "metric_type", "instance"}


def by_instance(series: Iterable[Series]) -> list[Line]:
    """Return the value of each instance over time, and of each combination of tags; the largest first."""
    lines = []
    for one in series:
        if not one.times_ms:
            continue
        tags = ", ".join(f"{key}={value}" for key, value in sorted(one.tags.items()) if key not in _OWN)
        label = one.tags.get("instance", "") + (f" ({tags})" if tags else "")
        values = [value if isinstance(value, int | float) else None for value in one.values]
        lines.append(Line(label, list(one.times_ms), values))
    return sorted(lines, key=lambda line: (-(line.last or 0), line.label))
