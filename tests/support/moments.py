"""Times in ISO 8601 that no store, broker or calendar can count."""

from __future__ import annotations

OUTSIDE = (
    "0001-01-01T00:00+23:59",
    "9999-12-31T23:59-23:59",
    "0001-01-01",
    "9999-12-31",
    "1969-12-31T23:59:59.999",
    "2262-01-01",
)
