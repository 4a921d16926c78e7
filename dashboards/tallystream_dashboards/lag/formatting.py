"""Format lag as text and as JSON, for the terminal, the page and programs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream_dashboards import formatting
from tallystream_dashboards.lag.catch_up import Between, CatchUp, TimeToCatchUp
from tallystream_dashboards.lag.time_lag import NO_LAG

if TYPE_CHECKING:
    from tallystream_dashboards.lag.samples import Rates
    from tallystream_dashboards.lag.state import GroupState, PartitionState
    from tallystream_dashboards.lag.time_lag import TimeLag


def time_lag(value: TimeLag | None) -> str:
    """Return a time lag as text: `12 s`, `≥ 10 min`, or a dash if it is not known."""
    if value is None or (not value.exact and value.seconds < 1):
        return formatting.DASH
    if value == NO_LAG:
        return "0 s"
    return _duration(value.seconds) if value.exact else f"≥ {formatting.duration(value.seconds)}"


def catches_up_in(time: TimeToCatchUp) -> str:
    """Return how long a group takes to catch up, as text.

    It is `now`, `4 min to 9 min`, `4 min or never`, `never at this rate`, `keeps up`, or a dash if it is not known.
    """
    if isinstance(time, CatchUp):
        return time.value
    low = _duration(time.low_s)
    if time.high_s is None:
        return f"{low} or never"
    high = _duration(time.high_s)
    return low if low == high else f"{low} to {high}"


def _duration(seconds: float) -> str:
    return formatting.duration(seconds) if seconds >= 1 else "< 1 s"


def lag_range(state: GroupState) -> str:
    """Return a group's lag as text: `1,234`, or `≥ 1,234` if partitions without a known lag have records."""
    if state.lag is None:
        return formatting.DASH
    return f"≥ {state.lag:,}" if state.uncommitted_records else f"{state.lag:,}"


def why(state: GroupState) -> str:
    """Return the reason of the status, and sentences about stale or unknown partitions."""
    reasons = [state.evaluation.reason, *([state.stale] if state.stale else [])]
    if state.unknown_partitions and state.lag is not None:
        reasons.append(
            f"Nothing valid is committed in {state.unknown_partitions:,} of {state.partition_count:,} partitions, "
            f"which hold {state.uncommitted_records:,} records."
        )
    return " ".join(reasons)


def group_json(state: GroupState, *, partitions: bool) -> dict[str, Any]:
    """Return a group as a JSON object, with its `partitions` or without.

    Numbers that are not known are null. `seconds_exact` is false if `seconds` is a lower bound or not known.
    """
    catch_up = state.catch_up
    now = 0.0 if catch_up is CatchUp.NOW else None
    low, high = (catch_up.low_s, catch_up.high_s) if isinstance(catch_up, Between) else (now, now)
    return {
        "group": state.group,
        "status": state.evaluation.status.name,
        "reason": state.evaluation.reason,
        "since_ms": state.since_ms,
        "gone": state.gone,
        "stale": state.stale or None,
        "state": state.broker_state or None,
        "members": state.members,
        "lag": state.lag,
        "max_lag": state.max_lag,
        "partitions_unknown": state.unknown_partitions,
        "records_uncommitted": state.uncommitted_records,
        **_time_lag_json(state.time_lag),
        **_rates_json(state.rates),
        "drain_s_low": low,
        "drain_s_high": high,
        "drain_never": catch_up is CatchUp.NEVER,
        "seen_ms": state.seen_ms,
        "partition_count": state.partition_count,
        **({"partitions": [partition_json(one) for one in state.partitions]} if partitions else {}),
    }


def partition_json(state: PartitionState) -> dict[str, Any]:
    """Return a partition as a JSON object. Numbers that are not known are null."""
    return {
        "topic": state.topic,
        "partition": state.partition,
        "status": state.evaluation.status.name,
        "reason": state.evaluation.reason,
        "stale": state.stale,
        "start": state.start,
        "end": state.end,
        "committed": state.committed,
        "lag": state.lag,
        **_time_lag_json(state.time_lag),
        **_rates_json(state.rates),
    }


def _time_lag_json(time_lag: TimeLag | None) -> dict[str, Any]:
    seconds, exact = (None, False) if time_lag is None else time_lag
    return {"seconds": seconds, "seconds_exact": exact}


def _rates_json(rates: Rates | None) -> dict[str, Any]:
    produced, consumed = (rates.produced, rates.consumed) if rates else (None, None)
    return {"produced_per_s": produced, "consumed_per_s": consumed}
