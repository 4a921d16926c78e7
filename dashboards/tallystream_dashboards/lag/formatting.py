"""Format lag as text, for the terminal and the page. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards import formatting
from tallystream_dashboards.lag.time_lag import NO_LAG

if TYPE_CHECKING:
    from tallystream_dashboards.lag.state import GroupState
    from tallystream_dashboards.lag.time_lag import TimeLag


def time_lag(value: TimeLag | None) -> str:
    """Return a time lag as text: `12 s`, `≥ 10 min`, or a dash if it is not known."""
    if value is None or (not value.exact and value.seconds < 1):
        return formatting.DASH
    if value == NO_LAG:
        return "0 s"
    text = formatting.duration(value.seconds) if value.seconds >= 1 else "< 1 s"
    return text if value.exact else f"≥ {text}"


def lag_range(state: GroupState) -> str:
    """Return a group's lag as text: `1,234`, or `≥ 1,234` if partitions without a known lag have records."""
    if state.lag is None:
        return formatting.DASH
    return f"≥ {state.lag:,}" if state.uncommitted_records else f"{state.lag:,}"
