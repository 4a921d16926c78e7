"""The output of a push: the plan with its differences, the permissions that it needs, and the result. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tallystream_dashboards.grafana.push.model import STOPS, WRITES, Action, Kind, What

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from tallystream_dashboards.grafana.push.model import Action

_ALERTING = ("alert.provisioning:write",)
_RULES = (*_ALERTING, "alert.rules.provisioning:write", "alert.rules:write")
_CONTACT = (*_ALERTING, "alert.notifications.provisioning:write", "alert.notifications:write")
_CONTACT_POINTS = (*_CONTACT, "alert.notifications.receivers:create", "alert.notifications.receivers:write")
_NEEDS: dict[What, dict[Kind, tuple[tuple[str, ...], ...]]] = {
    What.FOLDER: {Kind.CREATE: (("folders:create",),), Kind.UPDATE: (("folders:write",),)},
    What.DATASOURCE: {
        Kind.CREATE: (("datasources:create",), ("datasources:write",)),
        Kind.UPDATE: (("datasources:write",),),
        Kind.REMOVE: (("datasources:delete",),),
    },
    What.CONTACT: {Kind.CREATE: (_CONTACT_POINTS,), Kind.UPDATE: (_CONTACT_POINTS,)},
    What.DASHBOARD: {
        Kind.CREATE: (("dashboards:create",),),
        Kind.UPDATE: (("dashboards:write",),),
        Kind.REMOVE: (("dashboards:delete",),),
    },
    What.RULES: {Kind.CREATE: (_RULES,), Kind.UPDATE: (_RULES,), Kind.REMOVE: (_RULES,)},
}
"""By kind of resource and of action: each of the permissions that it takes, by any of its names."""


def missing(actions: Iterable[Action], allowed: Collection[str]) -> list[str]:
    """Return the permissions that the actions take and the token lacks, each by the first of its names."""
    return sorted({names[0] for names in _needed(actions) if not any(name in allowed for name in names)})


def _needed(actions: Iterable[Action]) -> Iterator[tuple[str, ...]]:
    for action in actions:
        yield from _NEEDS[action.what].get(action.kind, ())


SIGNS = {Kind.CREATE: "+", Kind.UPDATE: "~", Kind.REMOVE: "-", Kind.UNCHANGED: "=", Kind.KEPT: "="}
REMEDY = (
    "--overwrite writes over what a person changed, --keep-changed leaves it and pushes the rest, "
    "and --dry-run shows the differences."
)
SHOWN = 12
"""How many differences of one resource are shown."""


def lines(actions: Iterable[Action], *, differences: bool) -> Iterator[str]:
    """Yield a line for each resource, and the differences below it where they are asked for."""
    for action in actions:
        reason = f" ({action.reason})" if action.reason else ""
        yield f"{SIGNS.get(action.kind, '!')} {action.kind:<9} {named(action)}{reason}"
        if not differences or action.kind in (Kind.UNCHANGED, Kind.REMOVE):
            continue
        for change in action.changes[:SHOWN]:
            yield f"      {change}"
        if len(action.changes) > SHOWN:
            yield f"      … and {len(action.changes) - SHOWN} more differences"


def named(action: Action) -> str:
    """Return a resource as a person names it."""
    uid = "" if action.uid == action.name else f" [{action.uid}]"
    return f"{action.what} {action.name}{uid}"


def summary(actions: Sequence[Action], *, dry: bool) -> str:
    """Return the last line: how much of what was done, or would be."""
    kinds = Counter(action.kind for action in actions)
    if not any(kinds[kind] for kind in WRITES):
        return f"{len(actions)} resources, nothing to do."
    done = {Kind.CREATE: "created", Kind.UPDATE: "updated", Kind.REMOVE: "removed"}
    done |= {Kind.UNCHANGED: "unchanged", Kind.KEPT: "kept"}
    counted = ", ".join(f"{kinds[kind]} {word}" for kind, word in done.items() if kinds[kind])
    return f"Nothing was written. A push would leave {counted}." if dry else f"Done: {counted}."


def refusal(actions: Iterable[Action]) -> str:
    """Return why nothing is pushed, in one sentence; empty where nothing stands in the way."""
    stops = [action for action in actions if action.kind in STOPS]
    if not stops:
        return ""
    reasons = "; ".join(f"{named(action)}: {action.reason}" for action in stops)
    remedy = " " + REMEDY if any(action.kind is Kind.REFUSED for action in stops) else ""
    return f"Nothing was pushed. {reasons}.{remedy}"
