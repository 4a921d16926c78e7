"""Carry out the actions of a plan, and tell which permissions they need."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_dashboards.grafana.push import fingerprints
from tallystream_dashboards.grafana.push.client import NotFoundError
from tallystream_dashboards.grafana.push.model import JSON, WRITES, Action, Kind, PushFailedError, ResourceType
from tallystream_dashboards.grafana.push.read import group_path, read_datasource, read_group

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from tallystream_dashboards.grafana.push.client import Grafana

_RULES = ("alert.provisioning:write", "alert.rules.provisioning:write", "alert.rules:write")
_CONTACT_POINTS = (
    "alert.provisioning:write",
    "alert.notifications.provisioning:write",
    "alert.notifications:write",
    "alert.notifications.receivers:create",
    "alert.notifications.receivers:write",
)
_PERMISSIONS: dict[tuple[ResourceType, Kind], tuple[tuple[str, ...], ...]] = {
    (ResourceType.FOLDER, Kind.CREATE): (("folders:create",),),
    (ResourceType.FOLDER, Kind.UPDATE): (("folders:write",),),
    (ResourceType.DATASOURCE, Kind.CREATE): (("datasources:create",), ("datasources:write",)),
    (ResourceType.DATASOURCE, Kind.UPDATE): (("datasources:write",),),
    (ResourceType.DATASOURCE, Kind.REMOVE): (("datasources:delete",),),
    (ResourceType.CONTACT_POINT, Kind.CREATE): (_CONTACT_POINTS,),
    (ResourceType.CONTACT_POINT, Kind.UPDATE): (_CONTACT_POINTS,),
    (ResourceType.DASHBOARD, Kind.CREATE): (("dashboards:create",),),
    (ResourceType.DASHBOARD, Kind.UPDATE): (("dashboards:write",),),
    (ResourceType.DASHBOARD, Kind.REMOVE): (("dashboards:delete",),),
    (ResourceType.RULE_GROUP, Kind.CREATE): (_RULES,),
    (ResourceType.RULE_GROUP, Kind.UPDATE): (_RULES,),
    (ResourceType.RULE_GROUP, Kind.REMOVE): (_RULES,),
}
"""The permissions that an action needs: of each tuple, any one."""


def missing_permissions(actions: Iterable[Action], granted: Collection[str]) -> list[str]:
    """Return the permissions that the actions need and the token lacks; of alternatives, the first."""
    needed = (names for action in actions for names in _PERMISSIONS.get((action.resource_type, action.kind), ()))
    return sorted({names[0] for names in needed if not any(name in granted for name in names)})


def apply(
    grafana: Grafana, actions: Sequence[Action], folder_uid: str, *, now: str, on_done: Callable[[Action], None]
) -> None:
    """Carry out the actions in their order, and call `on_done` after each. `now` goes into version messages.

    An action that is carried out again changes nothing.

    Raises:
        PushFailedError: an action failed; the actions after it are not carried out.
    """
    writes = [action for action in actions if action.kind in WRITES]
    writer = _Writer(grafana, folder_uid, now)
    for index, action in enumerate(writes):
        try:
            writer.write(action)
        except TallystreamError as error:
            done = ", ".join(written.resource for written in writes[:index]) or "nothing"
            not_done = ", ".join(left.resource for left in writes[index:])
            raise PushFailedError(
                f"{action.kind} {action.resource}: {error} Done: {done}. Not done: {not_done}. "
                "Fix the cause and run the same command again: it does the rest."
            ) from error
        on_done(action)


class _Writer:
    def __init__(self, grafana: Grafana, folder_uid: str, now: str) -> None:
        self._grafana, self._folder_uid, self._now = grafana, folder_uid, now

    def write(self, action: Action) -> None:
        """Carry out one action."""
        if action.kind is Kind.REMOVE:
            self._remove(action)
            return
        {
            ResourceType.FOLDER: self._folder,
            ResourceType.DATASOURCE: self._datasource,
            ResourceType.CONTACT_POINT: self._contact_point,
            ResourceType.DASHBOARD: self._dashboard,
            ResourceType.RULE_GROUP: self._rule_group,
        }[action.resource_type](action)

    def _folder(self, action: Action) -> None:
        if action.kind is Kind.CREATE:
            self._grafana.request("create a folder", "POST", "/folders", {"title": action.name, "uid": action.uid})
        else:
            body = {"title": action.name, "overwrite": True}
            self._grafana.request("rename the folder", "PUT", f"/folders/{action.uid}", body)

    def _datasource(self, action: Action) -> None:
        path = f"/datasources/uid/{action.uid}"
        if action.kind is Kind.CREATE:
            self._grafana.request("create a data source", "POST", "/datasources", action.body)
        else:
            # With the version that was read, Grafana refuses if somebody changed it since.
            body = action.body | {"version": action.current.get("version")}
            self._grafana.request("change a data source", "PUT", path, body)
        stored = read_datasource(self._grafana, action.uid)
        fingerprint = fingerprints.of_datasource(action.body)
        body = _with_stored_digest(action.body, fingerprint, fingerprints.plain_datasource(stored))
        self._grafana.request("change a data source", "PUT", path, body | {"version": stored.get("version")})

    def _contact_point(self, action: Action) -> None:
        path = "/v1/provisioning/contact-points"
        if action.kind is Kind.CREATE:
            self._grafana.request("create a contact point", "POST", path, action.body, editable=True)
        else:
            self._grafana.request("change a contact point", "PUT", f"{path}/{action.uid}", action.body, editable=True)

    def _dashboard(self, action: Action) -> None:
        body = {
            "dashboard": {**action.body, "id": None, "version": action.current.get("version", 0)},
            "folderUid": self._folder_uid,
            "message": fingerprints.version_message(fingerprints.digest(action.body), self._now),
            "overwrite": False,  # Grafana refuses if somebody saved it since it was read
        }
        self._grafana.request("save a dashboard", "POST", "/dashboards/db", body)

    def _rule_group(self, action: Action) -> None:
        path = group_path(self._folder_uid, action.name)
        self._grafana.request("change a rule group", "PUT", path, action.body, editable=True)
        stored = read_group(self._grafana, self._folder_uid, action.name) or {}
        fingerprint = fingerprints.of_group(action.body)
        body = _with_stored_digest(action.body, fingerprint, fingerprints.plain_group(stored))
        self._grafana.request("change a rule group", "PUT", path, body, editable=True)

    def _remove(self, action: Action) -> None:
        if action.resource_type is ResourceType.RULE_GROUP:
            paths = [f"/v1/provisioning/alert-rules/{rule['uid']}" for rule in action.current["rules"]]
        elif action.resource_type is ResourceType.DASHBOARD:
            paths = [f"/dashboards/uid/{action.uid}"]
        else:
            paths = [f"/datasources/uid/{action.uid}"]
        for path in paths:
            # Somebody may have removed it since it was read.
            with contextlib.suppress(NotFoundError):
                self._grafana.request(f"remove a {action.resource_type}", "DELETE", path)


def _with_stored_digest(body: JSON, fingerprint: fingerprints.Fingerprint | None, stored: JSON) -> JSON:
    """Return what was written, with the digest of what Grafana stored."""
    if fingerprint is None:
        raise AssertionError("a resource without a fingerprint was pushed")
    return fingerprints.with_fingerprint(body, fingerprint._replace(stored=fingerprints.digest(stored)))
