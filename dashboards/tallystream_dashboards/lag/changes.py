"""When a status begins and ends, so that it changes at most once a window. Pure.

A bad status is held: it ends when its rule has not applied for a window. Every status of a group, its own and those of
its partitions, changes at most once a window. What waits for that is in the reason at once. The first status of a
group or a partition is no change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.lag.status import STALE, Evaluation, Rules, Status, evaluate_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.lag.offsets import PartitionId

_NOW = " Now: "
"""Stands between what gave a status that is held, and how it is now."""
WAITS = "That is {}, but a status of this group changed"
"""How a reason names a status that waits."""


def hold(found: Evaluation, before: Evaluation, seen_ms: int, *, now_ms: int, rules: Rules) -> Evaluation:
    """Return what was found, with the status `before`, of `seen_ms`, if that is bad, worse, and still held."""
    last_ms = seen_ms if before.last_ms is None else before.last_ms
    if before.status <= max(found.status, Status.NOTFOUND) or now_ms - last_ms >= rules.window_ms:
        return found
    was = f"It was {before.status.name} in the last {rules.window_s:g} s."
    if before.status is Status.REWIND:  # that the offset went back stays true
        was = before.reason.removeprefix(STALE).partition(_NOW)[0]
    return Evaluation(before.status, f"{was}{_NOW}{found.reason}", last_ms=last_ms)


def limit(
    found: Mapping[PartitionId, Evaluation],
    last: Mapping[PartitionId, Evaluation],
    group: Evaluation,
    *,
    now_ms: int,
    rules: Rules,
) -> dict[PartitionId, Evaluation]:
    """Return what is shown of what was `found` of a group's partitions, so that no status changes too soon.

    `last` is what was shown of each partition, `group` of the group. No partition's status changes if that made the
    group's change too soon, or better than what was found.
    """
    shown = _shown(found, last, now_ms=now_ms, rules=rules)
    status = _group_status(shown)
    if status is group.status:
        return shown
    if _may_change(group, now_ms, rules) and status >= min(group.status, _group_status(found)):
        return shown
    return _shown(found, last, now_ms=now_ms, rules=rules, none_changes=True)


def changed_ms(status: Status, before: Evaluation | None, now_ms: int) -> int | None:
    """Return when a status changed that was the one of `before`. If that was none yet, it is the first one."""
    if before is None or _is_none_yet(before):
        return None
    return before.changed_ms if before.status is status else now_ms


def _shown(
    found: Mapping[PartitionId, Evaluation],
    last: Mapping[PartitionId, Evaluation],
    *,
    now_ms: int,
    rules: Rules,
    none_changes: bool = False,
) -> dict[PartitionId, Evaluation]:
    shown = {}
    for name, now in found.items():
        before = last.get(name, _UNKNOWN)
        if now.status is before.status or (_may_change(before, now_ms, rules) and not none_changes):
            changed = changed_ms(now.status, before, now_ms)
            shown[name] = now if changed == now.changed_ms else now._replace(changed_ms=changed)
        else:
            reason = f"{now.reason} {WAITS.format(now.status.name)} in the last {rules.window_s:g} s."
            shown[name] = Evaluation(before.status, reason, notable=True, changed_ms=before.changed_ms)
    return shown


_UNKNOWN = Evaluation(Status.NOTFOUND, "")
"""The evaluation of a partition before the first one."""


def _group_status(partitions: Mapping[PartitionId, Evaluation]) -> Status:
    return evaluate_group([("", one) for one in partitions.values()]).status


def _is_none_yet(evaluation: Evaluation) -> bool:
    return evaluation.status is Status.NOTFOUND and evaluation.changed_ms is None


def _may_change(before: Evaluation, now_ms: int, rules: Rules) -> bool:
    return before.changed_ms is None or now_ms - before.changed_ms >= rules.window_ms
