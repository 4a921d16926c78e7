"""Times in options and addresses."""

from __future__ import annotations

import pytest

from support.malformed import INVALID_TIMES
from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.aggregate.start_position import parse_start
from tallystream_aggregator.times import parse_time, parse_time_ms


def test_a_time_without_an_offset_is_in_utc() -> None:
    """Milliseconds are exact."""
    assert parse_time_ms("2026-11-20T03:12") == parse_time_ms("2026-11-20T04:12+01:00") == 1_795_144_320_000
    assert [parse_time_ms(f"2026-11-20T03:12:00.{ms:03}") % 1000 for ms in range(1000)] == list(range(1000))
    assert parse_time("2026-11-20T04:12+01:00").isoformat() == "2026-11-20T03:12:00+00:00"


@pytest.mark.parametrize("text", ["noon", "", *INVALID_TIMES])
def test_an_invalid_time_is_rejected(text: str) -> None:
    """It is not a time, or out of the range of stores and brokers."""
    with pytest.raises(ValueError, match=r"."):
        parse_time(text)
    with pytest.raises(ConfigError, match="--from"):
        parse_start(text)
