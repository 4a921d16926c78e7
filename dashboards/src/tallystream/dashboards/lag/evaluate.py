"""Every group's state at one moment, worked out from the points that the collector keeps. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream.dashboards.lag.drain import Drain, NotKnown, Rates, add, drain, rates
from tallystream.dashboards.lag.seconds import Observation, SecondsLag, seconds_lag, worst
from tallystream.dashboards.lag.verdict import Judgement, Look, Rules, Verdict, judge, judge_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream.aggregator.sinks.base import Series

FIELDS = ("committed", "end", "members")
"""The fields of the collector's points that are read."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition of one group. `lag` is None where it is not known, `rates` where too little has been seen."""

    topic: str
    partition: int
    lag: int | None
    seconds: SecondsLag
    rates: Rates | None
    judgement: Judgement

    @property
    def name(self) -> str:
        """Topic and partition, as in `orders/3`."""
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class GroupState:
    """One group: the sum of the lags that are known, the worst age, when it is through, and the verdict."""

    group: str
    lag: int | None
    seconds: SecondsLag
    rates: Rates | None
    drain: Drain
    judgement: Judgement
    partitions: tuple[PartitionState, ...]
    seen_ms: int


def evaluate(series: Iterable[Series], *, now_ms: int, rules: Rules | None = None) -> list[GroupState]:
    """Return the state of every group at `now_ms`, worst verdict first, then most lag; what came later does not count.

    `series` are the fields `committed`, `end` and `members` of the measurement `tallystream.lag`. How far they reach
    back bounds how old a lag can be told: the verdict needs the window of the rules, the seconds all there is.
    """
    rules = rules or Rules()
    partitions: dict[str, dict[tuple[str, int], dict[str, Series]]] = {}
    for one in series:
        place = (one.tags["topic"], int(one.tags["partition"]))
        partitions.setdefault(one.tags["group"], {}).setdefault(place, {})[one.field] = one
    found = [_group(group, places, now_ms, rules) for group, places in partitions.items()]
    return sorted(
        (one for one in found if one is not None), key=lambda one: (-one.judgement.verdict, -(one.lag or 0), one.group)
    )


def _group(
    group: str, places: Mapping[tuple[str, int], Mapping[str, Series]], now_ms: int, rules: Rules
) -> GroupState | None:
    read = [(place, *_looks(fields, now_ms)) for place, fields in sorted(places.items())]
    seen_ms = max((history[-1].ts_ms for _, history, _ in read if history), default=None)
    if seen_ms is None:
        return None
    states, halves = [], []
    for (topic, number), history, looks in read:
        # What the group's newer rounds no longer mention (a deleted topic) is history, no part of its state.
        if not history or seen_ms - history[-1].ts_ms > rules.window_s * 1000:
            continue
        states.append(_partition(topic, number, history, looks, now_ms=now_ms, rules=rules))
        halves.append(_halves(looks, now_ms, rules))
    known = [state.lag for state in states if state.lag is not None]
    lag = sum(known) if known else None
    whole = [state.rates for state in states if state.rates is not None]
    seen = [add([part for part in half if part is not None]) for half in zip(*halves, strict=True) if any(half)]
    return GroupState(
        group=group,
        lag=lag,
        seconds=worst([state.seconds for state in states]),
        rates=add(whole) if whole else None,
        drain=NotKnown() if lag is None else drain(lag, seen),
        judgement=judge_group([(state.name, state.judgement) for state in states]),
        partitions=tuple(sorted(states, key=lambda one: (-one.judgement.verdict, -(one.lag or 0), one.name))),
        seen_ms=seen_ms,
    )


def _partition(
    topic: str, number: int, history: Sequence[Observation], looks: Sequence[Look], *, now_ms: int, rules: Rules
) -> PartitionState:
    # A look of the newest round, or none: the commit of an earlier round is not true any more.
    newest = looks[-1] if looks and looks[-1].ts_ms == history[-1].ts_ms else None
    judgement = judge(looks, now_ms=now_ms, rules=rules)
    if newest is None and history[-1].ts_ms >= now_ms - rules.window_s * 1000:
        judgement = Judgement(Verdict.NOTFOUND, "The group has committed nothing here.")
    elif newest is not None and newest.committed > newest.end:
        judgement = Judgement(Verdict.NOTFOUND, "The committed offset is past the end: the topic was made anew.")
    valid = newest is not None and newest.committed <= newest.end
    return PartitionState(
        topic=topic,
        partition=number,
        lag=newest.lag if newest is not None and valid else None,
        seconds=seconds_lag(newest.committed if newest else None, history, now_ms=now_ms),
        rates=rates(_window(looks, now_ms, rules.window_s)),
        judgement=judgement,
    )


def _halves(looks: Sequence[Look], now_ms: int, rules: Rules) -> tuple[Rates | None, ...]:
    """Return the rates of the window and of its newer half: how far they differ is how far they can be trusted."""
    return rates(_window(looks, now_ms, rules.window_s)), rates(_window(looks, now_ms, rules.window_s / 2))


def _window(looks: Sequence[Look], now_ms: int, window_s: float) -> list[Look]:
    return [look for look in looks if look.ts_ms >= now_ms - window_s * 1000]


def _looks(fields: Mapping[str, Series], now_ms: int) -> tuple[list[Observation], list[Look]]:
    ends, committed, members = (_points(fields.get(name), now_ms) for name in ("end", "committed", "members"))
    history = [Observation(ts, end) for ts, end in ends.items()]
    return history, [Look(ts, at, ends[ts], members.get(ts)) for ts, at in committed.items() if ts in ends]


def _points(series: Series | None, now_ms: int) -> dict[int, int]:
    if series is None:
        return {}
    return {ts: int(value) for ts, value in zip(series.times_ms, series.values, strict=True) if ts <= now_ms}
