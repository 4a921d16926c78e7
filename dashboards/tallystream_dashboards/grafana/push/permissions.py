"""What a token has to be allowed, by the actions of a plan. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.grafana.push.model import Action, Kind, What

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

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
