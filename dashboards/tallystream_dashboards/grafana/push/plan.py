"""Plan a push: which resources are created, updated, kept or removed, and why. Sends no request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tallystream_dashboards.grafana.push import fingerprints
from tallystream_dashboards.grafana.push.difference import Change, difference
from tallystream_dashboards.grafana.push.fingerprints import Fingerprint
from tallystream_dashboards.grafana.push.model import JSON, Action, Kind, ResourceType, ServerDashboard, ServerState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_dashboards.grafana.resources import Resources

OnManualChange = Literal["refuse", "keep", "overwrite"]
"""What happens to a person's change: it refuses the push, it is kept, or it is overwritten."""

PROVISIONED = "it is provisioned from a file or by another program: change it there, or push with another --uid-prefix"
ADOPTED = "it has no differences, and belongs to this command from now on"
INTERRUPTED = "an earlier push was interrupted"
REDACTED = "[REDACTED]"
"""Grafana's value of a secret setting."""

_ON_MANUAL_CHANGE = {"refuse": Kind.REFUSED, "keep": Kind.KEPT, "overwrite": Kind.UPDATE}

Decision = tuple[Kind, str]
"""What happens to a resource, and the reason."""


def plan(
    desired: Resources,
    with_secrets: Resources,
    server: ServerState,
    *,
    key: str,
    prune: bool = False,
    on_manual_change: OnManualChange = "refuse",
) -> list[Action]:
    """Return one action for each resource, in the order in which they have to be carried out.

    Args:
        desired: the resources with references instead of secrets, which may be shown.
        with_secrets: the same resources with secrets.
        server: the state of the server.
        key: the key of the digests of secrets, which readers of the data sources do not have.
        prune: remove what an earlier push wrote and is no longer desired.
        on_manual_change: what happens to resources that a person changed.
    """
    planner = _Planner(desired, server, on_manual_change)
    return [
        planner.folder(),
        *(
            planner.datasource(datasource, secret, key)
            for datasource, secret in zip(desired.datasources, with_secrets.datasources, strict=True)
        ),
        planner.contact_point(with_secrets.contact_point),
        *map(planner.dashboard, desired.dashboards.values()),
        *map(planner.rule_group, desired.rule_groups),
        *(planner.removals() if prune else ()),
    ]


class _Planner:
    def __init__(self, desired: Resources, server: ServerState, on_manual_change: OnManualChange) -> None:
        self._desired, self._server, self._owner = desired, server, desired.folder["uid"]
        self._on_manual_change = _ON_MANUAL_CHANGE[on_manual_change]
        self._on_free_choice = Kind.UPDATE if on_manual_change == "overwrite" else Kind.KEPT

    def folder(self) -> Action:
        """Plan the folder, which its uid identifies. People may change its title."""
        folder, current = self._desired.folder, self._server.folder
        uid, title = folder["uid"], folder["title"]
        if current is None:
            return Action(Kind.CREATE, ResourceType.FOLDER, uid, title, folder)
        changes = tuple(difference({"title": current.get("title")}, {"title": title}))
        if not changes:
            return Action(Kind.UNCHANGED, ResourceType.FOLDER, uid, title)
        reason = "its title may be changed in Grafana"
        return Action(self._on_free_choice, ResourceType.FOLDER, uid, title, folder, current, changes, reason)

    def datasource(self, datasource: JSON, with_secrets: JSON, key: str) -> Action:
        """Plan a data source. Grafana does not return secrets, so a digest shows whether they changed."""
        uid, name = datasource["uid"], datasource["name"]
        secrets = dict(with_secrets.get("secureJsonData") or {})
        if with_secrets["url"] != datasource["url"]:
            secrets["url"] = with_secrets["url"]
        new = Fingerprint(
            self._owner,
            fingerprints.digest(datasource),
            secrets=fingerprints.secrets_digest(secrets, key) if secrets else fingerprints.NONE,
        )
        body = fingerprints.with_fingerprint(with_secrets, new)
        current = self._server.datasources.get(uid)
        if current is None:
            other = next((uid for uid, one in self._server.datasources.items() if one.get("name") == name), None)
            if other is not None:
                reason = f"a data source with this name exists (uid {other}): give another --datasource-name"
                return Action(Kind.BLOCKED, ResourceType.DATASOURCE, uid, name, reason=reason)
            return Action(Kind.CREATE, ResourceType.DATASOURCE, uid, name, body)
        visible = {field: value for field, value in current.items() if field != "secureJsonFields"}
        changes = difference(fingerprints.plain_datasource(visible), fingerprints.plain_datasource(datasource))
        kind, reason = self._decide_datasource(current, new, same=not changes)
        old = fingerprints.of_datasource(current)
        if old is not None and old.secrets != new.secrets:
            changes.append(Change("~", "secureJsonData", "the secret or Grafana's token changed: it is written again"))
            kind = Kind.UPDATE if kind is Kind.UNCHANGED else kind
        return Action(kind, ResourceType.DATASOURCE, uid, name, body, current, tuple(changes), reason)

    def contact_point(self, with_secrets: JSON) -> Action:
        """Plan the contact point. Rules refer to it by name, so an existing one with the same name is used."""
        contact = self._desired.contact_point
        uid, name = contact["uid"], contact["name"]
        current = next((one for one in self._server.contact_points if one.get("uid") == uid), None)
        if current is None:
            if any(one.get("name") == name for one in self._server.contact_points):
                reason = "another one with this name exists, and is notified"
                return Action(Kind.KEPT, ResourceType.CONTACT_POINT, uid, name, reason=reason)
            return Action(Kind.CREATE, ResourceType.CONTACT_POINT, uid, name, with_secrets)
        changes = tuple(_contact_changes(contact, with_secrets, current))
        if not changes:
            return Action(Kind.UNCHANGED, ResourceType.CONTACT_POINT, uid, name)
        kind, reason = self._on_free_choice, "its settings may be changed in Grafana"
        if current.get("provenance"):
            kind, reason = Kind.KEPT, PROVISIONED
        return Action(kind, ResourceType.CONTACT_POINT, uid, name, with_secrets, current, changes, reason)

    def dashboard(self, model: JSON) -> Action:
        """Plan a dashboard."""
        uid, title, current = model["uid"], model["title"], self._server.dashboards.get(model["uid"])
        if current is None:
            return Action(Kind.CREATE, ResourceType.DASHBOARD, uid, title, model)
        changes = difference(fingerprints.plain_dashboard(current.model), fingerprints.plain_dashboard(model))
        if current.folder_uid != self._owner:
            changes.append(Change("~", "folder", f'"{current.folder_uid}" → "{self._owner}"'))
        kind, reason = self._decide_dashboard(current, fingerprints.digest(model), same=not changes)
        return Action(kind, ResourceType.DASHBOARD, uid, title, model, current.model, tuple(changes), reason)

    def rule_group(self, group: JSON) -> Action:
        """Plan a rule group. Writing it moves its rules back from other groups."""
        title, current = group["title"], self._server.rule_groups.get(group["title"])
        new = Fingerprint(self._owner, fingerprints.digest(group))
        body = fingerprints.with_fingerprint(group, new)
        home = (self._owner, title)
        groups = {rule["uid"]: self._server.rule_groups_of.get(rule["uid"], home) for rule in group["rules"]}
        moved = next((f"the rule {uid} is in the group {at[1]}" for uid, at in groups.items() if at != home), "")
        if current is None and not moved:
            return Action(Kind.CREATE, ResourceType.RULE_GROUP, title, title, body)
        current = current or {}
        changes = difference(fingerprints.plain_group(current), fingerprints.plain_group(group))
        kind, reason = self._decide_group(current, new, same=not changes, moved=moved)
        return Action(kind, ResourceType.RULE_GROUP, title, title, body, current, tuple(changes), reason)

    def removals(self) -> Iterator[Action]:
        """Yield the removal of what an earlier push wrote: rules, then their dashboards, then their data sources."""
        titles = {group["title"] for group in self._desired.rule_groups}
        for title, group in self._server.rule_groups.items():
            old = fingerprints.of_group(group)
            if title not in titles and old is not None and old.owner == self._owner:
                decision = self._decide_group(group, old, same=False, moved="")
                yield _removal(ResourceType.RULE_GROUP, title, title, decision, group)
        for uid, dashboard in self._server.dashboards.items():
            if uid not in self._desired.dashboards and self._is_ours(uid, dashboard):
                decision = self._decide_dashboard(dashboard, "", same=False)
                yield _removal(
                    ResourceType.DASHBOARD, uid, dashboard.model.get("title", uid), decision, dashboard.model
                )
        uids = {datasource["uid"] for datasource in self._desired.datasources}
        for uid, datasource in self._server.datasources.items():
            old = fingerprints.of_datasource(datasource)
            if uid not in uids and old is not None and old.owner == self._owner:
                decision = self._decide_datasource(datasource, old, same=False)
                yield _removal(ResourceType.DATASOURCE, uid, datasource.get("name", uid), decision, datasource)

    def _is_ours(self, uid: str, dashboard: ServerDashboard) -> bool:
        """Return whether a push wrote the dashboard. One that a person saved has no fingerprint, but our uid."""
        pushed = fingerprints.digest_in_message(dashboard.message) is not None
        return dashboard.folder_uid == self._owner and (pushed or uid.startswith(self._owner.removesuffix("folder")))

    def _decide_datasource(self, current: JSON, new: Fingerprint, *, same: bool) -> Decision:
        if current.get("readOnly"):
            return Kind.BLOCKED, PROVISIONED
        stored = fingerprints.digest(fingerprints.plain_datasource(current))
        return self._decide(fingerprints.of_datasource(current), new, stored, same=same)

    def _decide_dashboard(self, current: ServerDashboard, digest: str, *, same: bool) -> Decision:
        if current.provisioned:
            return Kind.BLOCKED, PROVISIONED
        moved = "" if current.folder_uid == self._owner else "it was moved to another folder"
        by = f" by {current.updated_by}" if current.updated_by else ""
        at = f" at {current.updated_at}" if current.updated_at else ""
        old_digest = fingerprints.digest_in_message(current.message)
        old = None if old_digest is None else Fingerprint(self._owner, old_digest, stored="")
        detail = moved or f"it was last saved{by}{at}"
        return self._decide(old, Fingerprint(self._owner, digest), moved, same=same, detail=detail)

    def _decide_group(self, current: JSON, new: Fingerprint, *, same: bool, moved: str) -> Decision:
        if any(rule.get("provenance") for rule in current.get("rules") or []):
            return Kind.BLOCKED, PROVISIONED
        stored = moved or fingerprints.digest(fingerprints.plain_group(current))
        return self._decide(fingerprints.of_group(current), new, stored, same=same, detail=moved)

    def _decide(
        self, old: Fingerprint | None, new: Fingerprint, stored: str, *, same: bool, detail: str = ""
    ) -> Decision:
        """Compare the old fingerprint with the new one and with the digest of what is stored.

        `same` tells that the desired resource has no differences; `detail` describes a person's change.
        """
        reason = "it differs from what a push wrote"
        if old is not None and old.owner == new.owner:
            if old.stored == stored:
                return (Kind.UNCHANGED if old.desired == new.desired else Kind.UPDATE), ""
            if old.stored == fingerprints.NONE:
                return Kind.UPDATE, INTERRUPTED
            reason = "it was changed since the last push"
        if same:
            return Kind.UPDATE, ADOPTED
        return self._on_manual_change, f"{reason}: {detail}" if detail else reason


def _removal(resource_type: ResourceType, uid: str, name: str, decision: Decision, current: JSON) -> Action:
    kind, reason = decision
    kind = Kind.REMOVE if kind in (Kind.UNCHANGED, Kind.UPDATE) else kind
    return Action(kind, resource_type, uid, name, current=current, reason=reason or "it is no longer generated")


def _contact_changes(contact: JSON, with_secrets: JSON, current: JSON) -> Iterator[Change]:
    """Yield the differences in fields that we set. The current settings are not shown: they may be secret."""
    for field in ("name", "type", "disableResolveMessage"):
        yield from difference({field: current.get(field)}, {field: contact.get(field)})
    settings = current.get("settings") or {}
    for field, value in with_secrets["settings"].items():
        if settings.get(field) not in (value, REDACTED):
            yield Change("~", f"settings.{field}", f"… → {contact['settings'][field]}")
