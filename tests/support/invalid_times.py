"""Times in ISO 8601 that are outside the range of a store, a broker or the calendar."""

from __future__ import annotations

INVALID_TIMES = (
    "0001-01-01T00:00+23:59",
    "9999-12-31T23:59-23:59",
    "0001-01-01",
    "9999-12-31",
    "1969-12-31T23:59:59.999",
    "2262-01-01",
)
