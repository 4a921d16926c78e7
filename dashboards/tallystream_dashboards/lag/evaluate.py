"""Compute the state of every group at one moment from the partitions' points in the store. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from tallystream_dashboards.lag.catch_up import Rates, rates
from tallystream_dashboards.lag.state import GroupState, PartitionState, evaluate_partition, group_state
from tallystream_dashboards.lag.status import HELD_MS, Evaluation, OffsetSample, Rules, Status
from tallystream_dashboards.lag.time_lag import AtLeast, Exact, Observation, SecondsLag, Unknown, Zero, seconds_lag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream_aggregator.sinks.base import Field, Series

__all__ = ["FIELDS", "GroupState", "PartitionState", "evaluate"]

FIELDS = ("committed", "end", "start", "members", "seconds", "bound", "status", "record_ms", "skew_ms", "stale", "lag")
"""The fields of the collector's points that are read."""

THINNED_MS = 300_000
"""The interval of samples in downsampled history, in ms."""

NEVER = -1

Fields = dict[int, int]
"""A field's values by time (epoch ms)."""


def evaluate(series: Iterable[Series], *, now_ms: int, rules: Rules | None = None) -> list[GroupState]:
    """Return the state of every group at `now_ms`, worst status first, then highest lag. Later points are ignored.

    `series` are fields of the measurement `tallystream.lag`; `committed` and `end` are required. If the history of the
    window has been downsampled, the stored status is returned.
    """
    rules = rules or Rules()
    partitions: dict[str, dict[tuple[str, int], dict[str, Series]]] = {}
    for one in series:
        place = (one.tags["topic"], int(one.tags["partition"]))
        partitions.setdefault(one.tags["group"], {}).setdefault(place, {})[one.field] = one
    found = [_group(group, places, now_ms, rules) for group, places in partitions.items()]
    return worst_first(one for one in found if one is not None)


def worst_first(states: Iterable[GroupState]) -> list[GroupState]:
    """Return the groups sorted by status (worst first), then by lag (highest first), then by name."""
    return sorted(states, key=lambda one: (-one.evaluation.status, -(one.lag or 0), one.group))


def halves(samples: Sequence[OffsetSample], now_ms: int, rules: Rules) -> tuple[Rates | None, ...]:
    """Return the rates over the window and over its newer half. The difference shows how uncertain they are."""
    spans = (rules.window_s, rules.window_s / 2)
    return tuple(rates(_since(samples, now_ms - round(span_s * 1000))) for span_s in spans)


def _since(samples: Sequence[OffsetSample], begin: int) -> list[OffsetSample]:
    inside = [sample for sample in samples if sample.ts_ms >= begin]
    before = next((sample for sample in reversed(samples) if sample.ts_ms < begin), None)
    # Unchanged samples are not kept, so the sample just before the window was still valid when it began.
    if before is not None and inside and inside[0].ts_ms - before.ts_ms <= HELD_MS:
        inside.insert(0, before._replace(ts_ms=begin))
    return inside


def _group(
    group: str, places: Mapping[tuple[str, int], Mapping[str, Series]], now_ms: int, rules: Rules
) -> GroupState | None:
    read = [(place, fields, _last_ms(fields, now_ms)) for place, fields in sorted(places.items())]
    seen_ms = max((last_ms for _, _, last_ms in read), default=NEVER)
    if seen_ms == NEVER:
        return None
    # A partition without points in the group's newer rounds (of a deleted topic) is not part of its state.
    oldest_ms = seen_ms - max(HELD_MS, rules.window_s * 1000)
    current = [one for one in read if one[2] >= oldest_ms]
    found = [
        _stale(place, fields, last_ms)
        if _at(fields.get("stale"), last_ms)
        else _partition(place, fields, now_ms=now_ms, rules=rules)
        for place, fields, last_ms in current
    ]
    members = [_last(fields.get("members"), now_ms) for _, fields, _ in current]
    return group_state(
        group,
        [state for state, _ in found],
        [half for _, half in found],
        seen_ms=seen_ms,
        members=next((one for one in members if one is not None), None),
    )


def _last_ms(fields: Mapping[str, Series], now_ms: int) -> int:
    """Return the time of a partition's newest point, read or stale; NEVER if there is none."""
    return max((*_points(fields.get("end"), now_ms), *_points(fields.get("stale"), now_ms)), default=NEVER)


def _stale(
    place: tuple[str, int], fields: Mapping[str, Series], last_ms: int
) -> tuple[PartitionState, tuple[Rates | None, ...]]:
    """Return the state of a partition that the newest round did not read, with its last status."""
    named = str(_value(fields.get("status"), last_ms))
    status = Status[named] if named in Status.__members__ else Status.NOTFOUND
    state = PartitionState(
        topic=place[0],
        partition=place[1],
        lag=_at(fields.get("lag"), last_ms),
        seconds=_recorded_age(fields, last_ms, last_ms) or Unknown("it was not read"),
        rates=None,
        evaluation=Evaluation(status, f"It was not read in the newest round; before, it was {status.name}."),
        skew_ms=_at(fields.get("skew_ms"), last_ms),
        stale=True,
    )
    return state, (None, None)


def _partition(
    place: tuple[str, int], fields: Mapping[str, Series], *, now_ms: int, rules: Rules
) -> tuple[PartitionState, tuple[Rates | None, ...]]:
    ends = _points(fields.get("end"), now_ms)
    committed, members = (_points(fields.get(name), now_ms) for name in ("committed", "members"))
    samples = [OffsetSample(ts, at, ends[ts], members.get(ts)) for ts, at in committed.items() if ts in ends]
    seen_ms = max(ends)
    # Only a sample of the newest round counts: an earlier round's commit is no longer valid.
    newest = samples[-1] if samples and samples[-1].ts_ms == seen_ms else None
    at = newest.committed if newest else None
    seconds = _recorded_age(fields, seen_ms, now_ms)
    if seconds is None:
        seconds = seconds_lag(at, [Observation(ts, end) for ts, end in ends.items()], now_ms=now_ms)
    evaluation = evaluate_partition(samples if newest else [], seconds, now_ms=now_ms, rules=rules)
    thinned = len(samples) >= 2 and samples[-1].ts_ms - samples[-2].ts_ms > HELD_MS
    if thinned or now_ms - seen_ms > HELD_MS:
        evaluation = _recorded(fields, seen_ms, now_ms)
    valid = newest is not None and newest.committed <= newest.end
    seen = halves(samples, now_ms, rules)
    state = PartitionState(
        topic=place[0],
        partition=place[1],
        lag=newest.lag if newest is not None and valid else None,
        seconds=seconds,
        rates=seen[0],
        evaluation=evaluation,
        start=_at(fields.get("start"), seen_ms),
        end=ends[seen_ms],
        committed=at,
        record_ms=_at(fields.get("record_ms"), seen_ms),
        skew_ms=_at(fields.get("skew_ms"), seen_ms),
    )
    return state, seen


def _recorded_age(fields: Mapping[str, Series], seen_ms: int, now_ms: int) -> SecondsLag | None:
    """Return the age in the collector's last point, plus the time since then. The collector has a longer history."""
    recorded_s, bound = (_value(fields.get(name), seen_ms) for name in ("seconds", "bound"))
    if not isinstance(recorded_s, int | float):
        return None
    if recorded_s == 0 and not bound:
        return Zero()
    seconds = float(recorded_s) + (now_ms - seen_ms) / 1000
    return AtLeast(seconds) if bound else Exact(seconds)


def _recorded(fields: Mapping[str, Series], seen_ms: int, now_ms: int) -> Evaluation:
    """Return the status in the collector's last point, for a time whose history has been downsampled."""
    ago_s, named = (now_ms - seen_ms) / 1000, str(_value(fields.get("status"), seen_ms))
    if ago_s * 1000 > THINNED_MS + HELD_MS or named not in Status.__members__:
        return Evaluation(Status.NOTFOUND, f"No offsets were read for {ago_s:.0f} s.")
    return Evaluation(Status[named], f"Judged {ago_s:.0f} s earlier; the history of that time is thinned out.")


def _value(series: Series | None, ts_ms: int) -> Field | None:
    if series is None or not series.times_ms:
        return None
    index = bisect_right(series.times_ms, ts_ms) - 1
    return series.values[index] if index >= 0 and series.times_ms[index] == ts_ms else None


def _points(series: Series | None, now_ms: int) -> Fields:
    if series is None:
        return {}
    return {ts: int(value) for ts, value in zip(series.times_ms, series.values, strict=True) if ts <= now_ms}


def _last(series: Series | None, now_ms: int) -> int | None:
    known = _points(series, now_ms)
    return known[max(known)] if known else None


def _at(series: Series | None, ts_ms: int) -> int | None:
    value = _value(series, ts_ms)
    return int(value) if isinstance(value, int | float) else None
