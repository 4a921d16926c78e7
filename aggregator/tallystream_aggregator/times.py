"""Moments as people write them, for every option, address and page alike. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END = datetime(2262, 1, 1, tzinfo=UTC)
"""Stores count nanoseconds in 64 bits, and to Kafka a time below 0 is no time: what lies outside is no moment."""


def moment(text: str) -> datetime:
    """Return a time in ISO 8601 as UTC; without an offset from UTC it is in UTC.

    Raises:
        ValueError: it is none, or not in the years 1970 to 2261.
    """
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if not EPOCH <= at < END:
        raise ValueError(f"{text!r} is not in the years 1970 to 2261")
    return at.astimezone(UTC)


def moment_ms(text: str) -> int:
    """Return the same as epoch milliseconds.

    Raises:
        ValueError: as `moment` does.
    """
    return (moment(text) - EPOCH) // timedelta(milliseconds=1)
