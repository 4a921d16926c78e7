"""Format lag as text and as JSON, for the terminal, the page and programs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream_dashboards import formatting
from tallystream_dashboards.lag.catch_up import Between, Drain, Drained, Never, Steady
from tallystream_dashboards.lag.time_lag import AtLeast, Exact, SecondsLag, Zero

if TYPE_CHECKING:
    from tallystream_dashboards.lag.catch_up import Rates
    from tallystream_dashboards.lag.evaluate import GroupState, PartitionState


def age(found: SecondsLag) -> str:
    """Return an age as text: `12 s`, `≥ 10 min`, or a dash if it is not known."""
    match found:
        case Zero():
            return "0 s"
        case Exact(seconds):
            return _span(seconds)
        case AtLeast(seconds) if seconds >= 1:
            return f"≥ {formatting.duration(seconds)}"
    return formatting.NOTHING


def until_drained(found: Drain) -> str:
    """Return how long a group takes to catch up, as text.

    It is `now`, `4 min to 9 min`, `4 min or never`, `never at this rate`, `keeps up`, or a dash if it is not known.
    """
    match found:
        case Drained():
            return "now"
        case Never():
            return "never at this rate"
        case Steady():
            return "keeps up"
        case Between(low, None):
            return f"{_span(low)} or never"
        case Between(low, high) if high is not None:
            soon, late = _span(low), _span(high)
            return soon if soon == late else f"{soon} to {late}"
    return formatting.NOTHING


def _span(seconds: float) -> str:
    return formatting.duration(seconds) if seconds >= 1 else "< 1 s"


def lag_range(state: GroupState) -> str:
    """Return a group's lag as text: `1,234`, or `≥ 1,234` if partitions without a known lag have records."""
    if state.lag is None:
        return formatting.NOTHING
    return f"≥ {state.lag:,}" if state.unread else f"{state.lag:,}"


def why(state: GroupState) -> str:
    """Return the reason of the status, and sentences about stale or unknown partitions and skew."""
    reasons = [state.evaluation.reason, *([state.stale] if state.stale else [])]
    if state.unknown and state.lag is not None:
        reasons.append(
            f"Nothing valid is committed in {state.unknown:,} of {state.count:,} partitions, "
            f"which hold {state.unread:,} records."
        )
    if state.skew_ms:
        reasons.append(skew(state.skew_ms))
    return " ".join(reasons)


def skew(skew_ms: int) -> str:
    """Return a sentence that explains a skew. Ages do not depend on it."""
    off = formatting.duration(abs(skew_ms) / 1000)
    if skew_ms > 0:
        return (
            f"Timestamps are {off} ahead of the records' arrival: a producer's clock is fast, or the collector's slow."
        )
    return f"Timestamps are {off} behind the records' arrival: a producer's clock is slow, or they are event times."


def group_json(state: GroupState, *, partitions: bool) -> dict[str, Any]:
    """Return a group as a JSON object, with its `partitions` or without.

    Numbers that are not known are null. `seconds_exact` is false if `seconds` is a lower bound or not known.
    """
    drain = state.drain
    low = drain.low_s if isinstance(drain, Between) else 0.0 if isinstance(drain, Drained) else None
    high = drain.high_s if isinstance(drain, Between) else low
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
        "max_lag": state.worst_lag,
        "partitions_unknown": state.unknown,
        "records_uncommitted": state.unread,
        **_seconds_json(state.seconds),
        "skew_ms": state.skew_ms,
        **_rates_json(state.rates),
        "drain_s_low": low,
        "drain_s_high": high,
        "drain_never": isinstance(drain, Never),
        "seen_ms": state.seen_ms,
        "partition_count": state.count,
        **({"partitions": [_partition_json(one) for one in state.partitions]} if partitions else {}),
    }


def _partition_json(state: PartitionState) -> dict[str, Any]:
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
        **_seconds_json(state.seconds),
        "record_ms": state.record_ms,
        "skew_ms": state.skew_ms,
        **_rates_json(state.rates),
    }


def _seconds_json(found: SecondsLag) -> dict[str, Any]:
    match found:
        case Zero():
            return {"seconds": 0.0, "seconds_exact": True}
        case Exact(seconds):
            return {"seconds": seconds, "seconds_exact": True}
        case AtLeast(seconds):
            return {"seconds": seconds, "seconds_exact": False}
    return {"seconds": None, "seconds_exact": False}


def _rates_json(found: Rates | None) -> dict[str, Any]:
    produced, consumed = (found.produced, found.consumed) if found else (None, None)
    return {"produced_per_s": produced, "consumed_per_s": consumed}
