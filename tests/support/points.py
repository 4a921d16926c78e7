"""A store in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import Series

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream_aggregator.sinks.base import Field, Point


class Points:
    """Points that can be read as from a store."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self.points = list(points)

    def measurements(self) -> list[str]:
        """Return the names of all measurements, sorted."""
        return sorted({one.measurement for one in self.points})

    def read(
        self,
        measurement: str,
        fields: Sequence[str],
        *,
        start_ms: int,
        end_ms: int,
        tags: Mapping[str, str] | None = None,
        last_before: bool = False,
    ) -> list[Series]:
        """Return the values of the fields, for each series, sorted by its tags and then by field."""
        wanted = (tags or {}).items()
        found: dict[tuple[tuple[tuple[str, str], ...], str], dict[int, Field]] = {}
        for point in sorted(self.points, key=lambda one: one.ts_ms):
            is_before = point.ts_ms < start_ms
            if point.measurement != measurement or point.ts_ms >= end_ms or not wanted <= point.tags.items():
                continue
            for name in point.fields.keys() & set(fields) if last_before or not is_before else ():
                values = found.setdefault((tuple(sorted(point.tags.items())), name), {})
                if is_before:
                    values.clear()
                values[point.ts_ms] = point.fields[name]
        return [
            Series(measurement, dict(tags), name, list(values), list(values.values()))
            for (tags, name), values in sorted(found.items())
        ]

    def close(self) -> None:
        """Release nothing."""
