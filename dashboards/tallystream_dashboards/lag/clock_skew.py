"""Clocks that are off: timestamps of records against the moments at which they came. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.lag.end_offset_history import Ends

TOLERANCE_MS = 5_000
"""A record is some time on its way, and clocks are never quite the same: less than this is no skew."""


def skew(timestamp_ms: int, earliest_ms: int | None, latest_ms: int, *, tolerance_ms: int = TOLERANCE_MS) -> int:
    """Return by how many ms a record's timestamp is ahead of its arrival, negative where it is behind; 0: it fits.

    The record came between `earliest_ms` (None: nobody looked) and `latest_ms`, by the collector's clock. A result is
    the least that is certain.
    """
    if timestamp_ms > latest_ms + tolerance_ms:
        return timestamp_ms - latest_ms
    if earliest_ms is not None and timestamp_ms < earliest_ms - tolerance_ms:
        return timestamp_ms - earliest_ms
    return 0


def skews(
    newest: Mapping[tuple[str, int], tuple[int, int]],
    ends: Mapping[tuple[str, int], Ends],
    asked: Mapping[int, int],
) -> dict[tuple[str, int], int]:
    """Return the skew of each partition, told by its record with the highest timestamp: (offset, timestamp in ms).

    `asked` says when the ends were asked for, by the times at which they were answered: the broker read them somewhere
    between the two, so a record that they lack may have come as soon as they were asked for.
    """
    found = {}
    for place, (offset, timestamp_ms) in newest.items():
        came = ends[place].appended(offset) if place in ends else None
        if came is not None:
            earliest_ms, latest_ms = came
            found[place] = skew(timestamp_ms, asked.get(earliest_ms or 0, earliest_ms), latest_ms)
    return found
