"""Read the groups' states, now or at a moment of the past, from the collector's points in the store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tallystream_dashboards.lag.catch_up import NotKnown
from tallystream_dashboards.lag.evaluate import FIELDS, THINNED_MS, evaluate, worst_first
from tallystream_dashboards.lag.model import LAG
from tallystream_dashboards.lag.state import GroupState, gone, unread
from tallystream_dashboards.lag.status import HELD_MS, Rules
from tallystream_dashboards.lag.storage import GROUP_FIELDS, GROUPS, ROUNDS, RULES_FIELDS, group_of, rules_of
from tallystream_dashboards.lag.time_lag import older

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.sinks.base import Field, PointReader, Series

GONE_MS = 7 * 86_400_000
"""How long a group that is gone is shown, in ms."""
SPAN_MS = THINNED_MS + HELD_MS
MANY = 1000
"""For a group with more partitions, only the newest samples are read, unless rules are given."""


def last_round_ms(reader: PointReader, *, at_ms: int) -> int | None:
    """Return the time of the newest round up to `at_ms`; None if there is none.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    found = reader.read(ROUNDS, ("groups",), start_ms=at_ms + 1, end_ms=at_ms + 2, last_before=True)
    return found[0].times_ms[0] if found and found[0].times_ms[0] <= at_ms else None


def read_groups(reader: PointReader, *, at_ms: int, group: str | None = None) -> list[GroupState]:
    """Return every group with its status at `at_ms`, worst first, without partitions, including those that are gone.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    tags = {"group": group} if group is not None else None
    round_ms = last_round_ms(reader, at_ms=at_ms)
    if round_ms is None:
        return []
    found = _newest(reader.read(GROUPS, GROUP_FIELDS, start_ms=round_ms - SPAN_MS, end_ms=at_ms + 1, tags=tags))
    last = reader.read(GROUPS, ("status",), start_ms=round_ms - SPAN_MS, end_ms=at_ms + 1, tags=tags, last_before=True)
    for one in last:
        name, seen_ms = one.tags["group"], one.times_ms[-1]
        if name not in found and at_ms - seen_ms < GONE_MS:
            own = {"group": name}
            found |= _newest(reader.read(GROUPS, GROUP_FIELDS, start_ms=seen_ms, end_ms=seen_ms + 1, tags=own))
    complete = not reader.read(ROUNDS, ("incomplete",), start_ms=round_ms, end_ms=round_ms + 1)
    return worst_first(_marked(state, round_ms, complete=complete) for state in found.values())


def read_group(reader: PointReader, group: str, *, at_ms: int, rules: Rules | None = None) -> GroupState | None:
    """Return one group with its partitions at `at_ms`; None if the store has nothing of it.

    Its status is evaluated by `rules`; without, it is the collector's, and partitions are evaluated by its rules.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    recorded = next(iter(read_groups(reader, at_ms=at_ms, group=group)), None)
    round_ms = last_round_ms(reader, at_ms=at_ms) or at_ms
    now_ms = round_ms if at_ms - round_ms <= HELD_MS else at_ms
    until_ms = recorded.seen_ms if recorded is not None and recorded.gone else now_ms
    evaluation_rules = rules or _rules(reader, round_ms)
    back_ms = max(HELD_MS, round(evaluation_rules.window_s * 1000)) + HELD_MS + THINNED_MS
    if recorded is not None and recorded.count > MANY and rules is None:
        back_ms = HELD_MS  # only the partitions' newest samples: reading their history would take too long
    series = reader.read(LAG, FIELDS, start_ms=until_ms - back_ms, end_ms=until_ms + 1, tags={"group": group})
    return merge(recorded, evaluate(series, now_ms=until_ms, rules=evaluation_rules), own_rules=rules is not None)


def merge(recorded: GroupState | None, evaluated: list[GroupState], *, own_rules: bool) -> GroupState | None:
    """Return a group with its partitions. With `own_rules` its status is the evaluated one, else the collector's."""
    if not evaluated or recorded is None:
        return recorded or next(iter(evaluated), None)
    (found,) = evaluated
    if own_rules and not recorded.gone:
        logged = recorded.logged_skew_ms
        members, word = recorded.members, recorded.broker_state
        return replace(found, members=members, broker_state=word, logged_skew_ms=logged, stale=recorded.stale)
    return replace(recorded, partitions=found.partitions)


def read_recorded(reader: PointReader, *, at_ms: int, rules: Rules) -> list[GroupState]:
    """Return every group with its status by `rules`, from the partitions' points. This is slower than `read_groups`.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    back_ms = round(rules.window_s * 1000) + HELD_MS
    states = evaluate(reader.read(LAG, FIELDS, start_ms=at_ms - back_ms, end_ms=at_ms + 1), now_ms=at_ms, rules=rules)
    logged = {state.group: state for state in read_groups(reader, at_ms=at_ms)}
    merged = [merge(logged.pop(state.group, None), [state], own_rules=True) for state in states]
    return worst_first([*(state for state in merged if state is not None), *(s for s in logged.values() if s.gone)])


def _rules(reader: PointReader, round_ms: int) -> Rules:
    """Return the collector's rules in a round."""
    found = reader.read(ROUNDS, RULES_FIELDS, start_ms=round_ms, end_ms=round_ms + 1)
    return rules_of({one.field: one.values[-1] for one in found if one.values})


def _newest(series: Iterable[Series]) -> dict[str, GroupState]:
    fields: dict[str, dict[int, dict[str, Field]]] = {}
    for one in series:
        last = one.times_ms[-1]
        fields.setdefault(one.tags["group"], {}).setdefault(last, {})[one.field] = one.values[-1]
    # A field that the newest point does not have is no longer valid.
    return {group: group_of(group, times[max(times)], max(times)) for group, times in fields.items()}


def _marked(state: GroupState, round_ms: int, *, complete: bool) -> GroupState:
    """Return a group, marked as gone or stale if the newest rounds do not have it.

    It is gone if the newest round listed all groups, else stale.
    """
    if state.gone:
        return replace(state, drain=NotKnown(), rates=None)
    if round_ms - state.seen_ms > HELD_MS:
        return gone(state) if complete else unread(state)
    # If only its age has changed, a group has no point in the newest rounds.
    seconds = older(state.seconds, max(0, round_ms - state.seen_ms) / 1000)
    return replace(state, seconds=seconds, seen_ms=state.logged_seen_ms or state.seen_ms)
