"""Units of time, and the times in options and addresses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END = datetime(2262, 1, 1, tzinfo=UTC)
"""The exclusive end of the valid times: stores count nanoseconds in 64 bits. Kafka has no times before `EPOCH`."""


def parse_time(text: str) -> datetime:
    """Parse a time in ISO 8601 and return it in UTC. A time without an offset from UTC is in UTC.

    Raises:
        ValueError: `text` is not a time, or not in the years 1970 to 2261.
    """
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if not EPOCH <= at < END:
        raise ValueError(f"{text!r} is not in the years 1970 to 2261")
    return at.astimezone(UTC)


def parse_time_ms(text: str) -> int:
    """Parse a time as `parse_time` does, and return it in epoch ms.

    Raises:
        ValueError: `text` is not a time, or not in the years 1970 to 2261.
    """
    return (parse_time(text) - EPOCH) // timedelta(milliseconds=1)
