"""Read the groups' states, now or at a moment of the past, from the collector's points in the store."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from tallystream_dashboards.lag.catch_up import CatchUp
from tallystream_dashboards.lag.samples import MAX_GAP_MS, OffsetSample, OffsetSamples
from tallystream_dashboards.lag.state import (
    GONE_MS,
    MISSING,
    GroupState,
    PartitionState,
    evaluate_partition,
    group_state,
    mark_gone,
    mark_stale,
    worst_first,
)
from tallystream_dashboards.lag.status import Evaluation, Rules, Status
from tallystream_dashboards.lag.storage import (
    GROUP_FIELDS,
    GROUPS,
    LAG,
    PARTITION_FIELDS,
    ROUNDS,
    RULES_FIELDS,
    SLOT_MS,
    group_of,
    rules_of,
    status_of,
    time_lag_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.sinks.base import Field, PointReader, Series
    from tallystream_dashboards.lag.offsets import PartitionId
    from tallystream_dashboards.lag.samples import Rates

MAX_POINT_AGE_MS = SLOT_MS + MAX_GAP_MS
"""The newest point of a group that is not gone is at most this old, in ms, also in downsampled history."""
MANY_PARTITIONS = 1000
"""For a group with more partitions, only the newest samples are read, unless rules are given."""

_OTHER_SAMPLES = "The status that the collector computed, from other samples than were read here."


def last_round_ms(reader: PointReader, *, at_ms: int) -> int | None:
    """Return the time of the newest round up to `at_ms`; None if there is none.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    rounds = reader.read(ROUNDS, ("groups",), start_ms=at_ms + 1, end_ms=at_ms + 2, last_before=True)
    return rounds[0].times_ms[0] if rounds and rounds[0].times_ms[0] <= at_ms else None


def read_groups(reader: PointReader, *, at_ms: int, group: str | None = None) -> list[GroupState]:
    """Return every group with its status at `at_ms`, worst first, without partitions, including those that are gone.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    tags = {"group": group} if group is not None else None
    round_ms = last_round_ms(reader, at_ms=at_ms)
    if round_ms is None:
        return []
    start_ms = round_ms - MAX_POINT_AGE_MS
    newest = _newest(reader.read(GROUPS, GROUP_FIELDS, start_ms=start_ms, end_ms=at_ms + 1, tags=tags))
    older: dict[int, list[str]] = {}
    for one in reader.read(GROUPS, ("status",), start_ms=start_ms, end_ms=at_ms + 1, tags=tags, last_before=True):
        name, ts_ms = one.tags["group"], one.times_ms[-1]
        if name not in newest and at_ms - ts_ms < GONE_MS:
            older.setdefault(ts_ms, []).append(name)
    for ts_ms, names in older.items():
        tags = {"group": names[0]} if len(names) == 1 else None
        found = _newest(reader.read(GROUPS, GROUP_FIELDS, start_ms=ts_ms, end_ms=ts_ms + 1, tags=tags))
        newest |= {name: found[name] for name in names if name in found}
    complete = not reader.read(ROUNDS, ("incomplete",), start_ms=round_ms, end_ms=round_ms + 1)
    states = (_state_at(round_ms, state, ts_ms, complete=complete) for state, ts_ms in newest.values())
    # A point of a group that is gone is later than the group, above all if the collector was restarted.
    return worst_first(state for state in states if not state.gone or at_ms - state.seen_ms < GONE_MS)


def read_group(reader: PointReader, group: str, *, at_ms: int, rules: Rules | None = None) -> GroupState | None:
    """Return one group with its partitions at `at_ms`; None if the store has nothing of it.

    Its status is evaluated by `rules`; without, it is the collector's, and partitions are evaluated by its rules.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    stored = next(iter(read_groups(reader, at_ms=at_ms, group=group)), None)
    round_ms = last_round_ms(reader, at_ms=at_ms) or at_ms
    now_ms = round_ms if at_ms - round_ms <= MAX_GAP_MS else at_ms
    until_ms = stored.seen_ms if stored is not None and stored.gone else now_ms
    evaluation_rules = rules or _rules(reader, round_ms)
    back_ms = _window_ms(evaluation_rules) + MAX_POINT_AGE_MS
    if stored is not None and stored.partition_count > MANY_PARTITIONS and rules is None:
        # Only the partitions' newest samples, in or before the round: reading their history would take too long.
        back_ms = max(0, until_ms - round_ms) + MAX_GAP_MS
    tags = {"group": group}
    series = reader.read(LAG, PARTITION_FIELDS, start_ms=until_ms - back_ms, end_ms=until_ms + 1, tags=tags)
    evaluated = next(iter(evaluate(series, now_ms=until_ms, rules=evaluation_rules, own_rules=rules is not None)), None)
    return merge(stored, evaluated, own_rules=rules is not None)


def read_groups_by_rules(reader: PointReader, *, at_ms: int, rules: Rules) -> list[GroupState]:
    """Return every group with its status by `rules`, from the partitions' points. This is slower than `read_groups`.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    start_ms = at_ms - _window_ms(rules) - MAX_POINT_AGE_MS
    series = reader.read(LAG, PARTITION_FIELDS, start_ms=start_ms, end_ms=at_ms + 1)
    stored = {state.group: state for state in read_groups(reader, at_ms=at_ms)}
    merged = [
        merge(stored.pop(state.group, None), state, own_rules=True)
        for state in evaluate(series, now_ms=at_ms, rules=rules)
    ]
    return worst_first([*(state for state in merged if state), *stored.values()])


def merge(stored: GroupState | None, evaluated: GroupState | None, *, own_rules: bool) -> GroupState | None:
    """Return a group with its partitions. With `own_rules` its status is the evaluated one, else the collector's."""
    if evaluated is None or stored is None:
        return stored or evaluated
    if not stored.partition_count and not stored.gone:
        return stored  # the points are of partitions that have been deleted
    if not own_rules or stored.gone:
        return replace(stored, partitions=evaluated.partitions)
    return replace(
        evaluated,
        members=stored.members,
        broker_state=stored.broker_state,
        stored_skew_ms=stored.stored_skew_ms,
        stale=stored.stale,
    )


def _window_ms(rules: Rules) -> int:
    return max(MAX_GAP_MS, round(rules.window_s * 1000))


def _rules(reader: PointReader, round_ms: int) -> Rules:
    """Return the collector's rules in a round."""
    series = reader.read(ROUNDS, RULES_FIELDS, start_ms=round_ms, end_ms=round_ms + 1)
    return rules_of({one.field: one.values[-1] for one in series if one.values})


def _newest(series: Iterable[Series]) -> dict[str, tuple[GroupState, int]]:
    """Return the newest state of each group and the time of its point."""
    fields: dict[str, dict[int, dict[str, Field]]] = {}
    for one in series:
        by_time = fields.setdefault(one.tags["group"], {})
        by_time.setdefault(one.times_ms[-1], {})[one.field] = one.values[-1]
    # A field that the newest point does not have is no longer valid.
    newest = {group: max(times) for group, times in fields.items()}
    return {group: (group_of(group, fields[group][ts_ms], ts_ms), ts_ms) for group, ts_ms in newest.items()}


def _state_at(round_ms: int, state: GroupState, ts_ms: int, *, complete: bool) -> GroupState:
    """Return a group in the newest round, by its state in its newest point, at `ts_ms`.

    If the newest rounds do not have the group, it is gone if the newest round listed all groups, else stale.
    """
    if state.gone:
        return replace(state, catch_up=CatchUp.UNKNOWN, rates=None)
    if round_ms - ts_ms > MAX_GAP_MS:
        return mark_gone(state, MISSING) if complete else mark_stale(state)
    # If only its time lag has changed, a group has no point in the newest rounds, although they have read it.
    later_s = max(0, round_ms - ts_ms) / 1000
    seen_ms = state.seen_ms if state.stale else max(round_ms, ts_ms)
    return replace(state, time_lag=state.time_lag and state.time_lag.after(later_s), seen_ms=seen_ms)


def evaluate(series: Iterable[Series], *, now_ms: int, rules: Rules, own_rules: bool = True) -> list[GroupState]:
    """Return the state of every group at `now_ms`, worst first, from its partitions' points. Later points are ignored.

    `series` are fields of the measurement `tallystream.lag`; `committed` and `end` are required. If the history of the
    window has been downsampled, the stored status is returned. Without `own_rules`, `rules` are the collector's, and a
    partition has the stored status if the collector had other samples.
    """
    groups: dict[str, dict[PartitionId, _Points]] = {}
    for one in series:
        partition = (one.tags["topic"], int(one.tags["partition"]))
        groups.setdefault(one.tags["group"], {}).setdefault(partition, _Points(now_ms)).add(one)
    states = (
        _evaluate_group(group, partitions, now_ms, rules, own_rules=own_rules) for group, partitions in groups.items()
    )
    return worst_first(state for state in states if state is not None)


def samples(series: Iterable[Series], *, now_ms: int) -> dict[tuple[str, PartitionId], list[OffsetSample]]:
    """Return the samples up to `now_ms` by group and partition."""
    points: dict[tuple[str, PartitionId], _Points] = {}
    for one in series:
        key = (one.tags["group"], (one.tags["topic"], int(one.tags["partition"])))
        points.setdefault(key, _Points(now_ms)).add(one)
    return {key: one.samples() for key, one in points.items()}


class _Points:
    """The points of one partition of a group, up to a moment."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._fields: dict[str, Series] = {}

    def add(self, series: Series) -> None:
        self._fields[series.field] = series

    @property
    def last_ms(self) -> int | None:
        """The time of the newest point, read or stale."""
        ends = (self._before(field) for field in ("end", "stale"))
        return max((series.times_ms[index] for series, index in filter(None, ends)), default=None)

    def last(self, field: str) -> Field | None:
        """Return the newest value of a field."""
        before = self._before(field)
        return None if before is None else before[0].values[before[1]]

    def at(self, field: str, ts_ms: int) -> Field | None:
        """Return the value of a field in the point at `ts_ms`."""
        before = self._before(field, ts_ms)
        return before[0].values[before[1]] if before is not None and before[0].times_ms[before[1]] == ts_ms else None

    def samples(self) -> list[OffsetSample]:
        ends, members = self._ints("end"), self._ints("members")
        committed = self._ints("committed")
        return [OffsetSample(ts, at, ends[ts], members.get(ts)) for ts, at in committed.items() if ts in ends]

    def _before(self, field: str, ts_ms: int | None = None) -> tuple[Series, int] | None:
        series = self._fields.get(field)
        index = -1 if series is None else bisect_right(series.times_ms, self._now_ms if ts_ms is None else ts_ms) - 1
        return None if series is None or index < 0 else (series, index)

    def _ints(self, field: str) -> dict[int, int]:
        series = self._fields.get(field)
        if series is None:
            return {}
        points = zip(series.times_ms, series.values, strict=True)
        return {ts_ms: int(value) for ts_ms, value in points if ts_ms <= self._now_ms}


def _evaluate_group(
    group: str, partitions: Mapping[PartitionId, _Points], now_ms: int, rules: Rules, *, own_rules: bool
) -> GroupState | None:
    read = [(partition, points, points.last_ms) for partition, points in sorted(partitions.items())]
    seen_ms = max((ts_ms for _, _, ts_ms in read if ts_ms is not None), default=None)
    if seen_ms is None:
        return None
    # A partition without points in the group's newer rounds (of a deleted topic) is not part of its state.
    oldest_ms = seen_ms - max(MAX_GAP_MS, rules.window_s * 1000)
    states, rates, members = [], [], None
    for partition, points, ts_ms in read:
        if ts_ms is not None and ts_ms >= oldest_ms:
            if points.at("stale", ts_ms):
                states.append(_stale_partition(partition, points, ts_ms))
            else:
                state, own_rates = _evaluate_partition(
                    partition, points, ts_ms, now_ms=now_ms, rules=rules, own_rules=own_rules
                )
                states.append(state)
                rates.append(own_rates)
            members = _int(points.last("members")) if members is None else members
    return group_state(group, states, rates, seen_ms=seen_ms, members=members)


def _stale_partition(partition: PartitionId, points: _Points, ts_ms: int) -> PartitionState:
    """Return the state of a partition that the newest round did not read, with its last status."""
    status = status_of(points.at("status", ts_ms))
    return PartitionState(
        *partition,
        lag=_int(points.at("lag", ts_ms)),
        time_lag=time_lag_of(points.at("seconds", ts_ms), points.at("bound", ts_ms)),
        rates=None,
        evaluation=Evaluation(status, f"It was not read in the newest round; before, it was {status.name}."),
        skew_ms=_int(points.at("skew_ms", ts_ms)),
        stale=True,
    )


def _evaluate_partition(
    partition: PartitionId, points: _Points, ts_ms: int, *, now_ms: int, rules: Rules, own_rules: bool
) -> tuple[PartitionState, tuple[Rates | None, Rates | None]]:
    """Return the state of a partition whose newest point is at `ts_ms`, and its rates over the window and its half."""
    history = OffsetSamples(round(rules.window_s * 1000))
    for sample in points.samples():
        history.add(sample)
    kept = history.all()
    # Only a sample of the newest round counts: an earlier round's commit is no longer valid.
    newest = kept[-1] if kept and kept[-1].ts_ms == ts_ms else None
    time_lag = time_lag_of(points.at("seconds", ts_ms), points.at("bound", ts_ms))
    if time_lag is not None:
        time_lag = time_lag.after((now_ms - ts_ms) / 1000)
    downsampled = len(kept) >= 2 and kept[-1].ts_ms - kept[-2].ts_ms > MAX_GAP_MS
    if downsampled or now_ms - ts_ms > MAX_GAP_MS:
        evaluation = _stored_evaluation(points, ts_ms, now_ms)
    else:
        evaluation = evaluate_partition(kept if newest else [], time_lag, now_ms=now_ms, rules=rules)
        status = status_of(points.at("status", ts_ms))
        if not own_rules and evaluation.status is not status:
            evaluation = Evaluation(status, _OTHER_SAMPLES)
    end = _int(points.at("end", ts_ms))
    rates = history.rates(now_ms)
    state = PartitionState(
        *partition,
        lag=newest.lag if newest is not None and newest.committed <= newest.end else None,
        time_lag=time_lag,
        rates=rates[0],
        evaluation=evaluation,
        start=_int(points.at("start", ts_ms)),
        end=end,
        committed=newest.committed if newest else None,
        record_ms=_int(points.at("record_ms", ts_ms)),
        skew_ms=_int(points.at("skew_ms", ts_ms)),
    )
    return state, rates


def _stored_evaluation(points: _Points, ts_ms: int, now_ms: int) -> Evaluation:
    """Return the status in the collector's last point, for a time whose history has been downsampled."""
    age_s = (now_ms - ts_ms) / 1000
    if now_ms - ts_ms > MAX_POINT_AGE_MS:
        return Evaluation(Status.NOTFOUND, f"No offsets were read for {age_s:.0f} s.")
    status = status_of(points.at("status", ts_ms))
    return Evaluation(status, f"The status of {age_s:.0f} s earlier: the history of that time is downsampled.")


def _int(value: Field | None) -> int | None:
    return int(value) if isinstance(value, int | float) else None
