"""The plan of a push: what is created, updated, kept or removed, and why. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tallystream_dashboards.grafana.push import fingerprints as marks
from tallystream_dashboards.grafana.push.difference import Change, difference
from tallystream_dashboards.grafana.push.model import JSON, Action, Found, FoundDashboard, Kind, What

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_dashboards.grafana.push.fingerprints import Mark
    from tallystream_dashboards.grafana.resources import Resources

OnManualChange = Literal["refuse", "keep", "overwrite"]
"""What becomes of what a person changed: the whole push is refused, it stays as it is, or it is written over."""

PROVISIONED = "it is provisioned from a file or by another program: change it there, or push with another --uid-prefix"
ADOPTED = "nothing differs, and it is this command's from now on"
INTERRUPTED = "an earlier push was interrupted"
ON_MANUAL_CHANGE: dict[OnManualChange, Kind] = {"refuse": Kind.REFUSED, "keep": Kind.KEPT, "overwrite": Kind.UPDATE}

Verdict = tuple[Kind, str]


def datasource_verdict(was: JSON, mark: Mark, *, same: bool, on_manual_change: OnManualChange) -> Verdict:
    """Judge a data source by its mark, the new one, and whether it is the same as what is wanted."""
    if was.get("readOnly"):
        return Kind.BLOCKED, PROVISIONED
    made = marks.digest(marks.plain_datasource(was))
    return _verdict(marks.datasource_mark(was), mark, made, same=same, on_manual_change=on_manual_change)


def dashboard_verdict(
    was: FoundDashboard, owner: str, wanted: str, *, same: bool, on_manual_change: OnManualChange
) -> Verdict:
    """Judge a dashboard by the message of its newest version, and by its folder."""
    if was.provisioned:
        return Kind.BLOCKED, PROVISIONED
    moved = "" if was.folder_uid == owner else "it was moved to another folder"
    saved = " ".join(
        part for part in ("it was last saved", was.by and f"by {was.by}", was.at and f"at {was.at}") if part
    )
    known = marks.pushed(was.message)
    mark = None if known is None else marks.Mark(owner, known, made="")
    return _verdict(
        mark, marks.Mark(owner, wanted), moved, same=same, on_manual_change=on_manual_change, told=moved or saved
    )


def group_verdict(was: JSON, mark: Mark, *, same: bool, moved: str, on_manual_change: OnManualChange) -> Verdict:
    """Judge a rule group by its rules' marks. `moved` tells of a rule that is elsewhere now."""
    if any(rule.get("provenance") for rule in was.get("rules") or []):
        return Kind.BLOCKED, PROVISIONED
    made = moved or marks.digest(marks.plain_group(was))
    return _verdict(marks.group_mark(was), mark, made, same=same, on_manual_change=on_manual_change, told=moved)


def _verdict(
    known: Mark | None, mark: Mark, made: str, *, same: bool, on_manual_change: OnManualChange, told: str = ""
) -> Verdict:
    """Compare the mark that is there with the new one, and what it says was made with what is there."""
    mine = known is not None and known.owner == mark.owner
    if known is not None and mine:
        if known.made == made:
            return (Kind.UNCHANGED if known.wanted == mark.wanted else Kind.UPDATE), ""
        if known.made == marks.PENDING:
            return Kind.UPDATE, INTERRUPTED
    if same:
        return Kind.UPDATE, ADOPTED
    reason = "it was changed since the last push" if mine else "it is not as a push left it"
    return ON_MANUAL_CHANGE[on_manual_change], f"{reason}: {told}" if told else reason


HIDDEN = "[REDACTED]"
"""What Grafana shows of a secret setting."""


def plan_folder(wanted: JSON, found: Found, on_manual_change: OnManualChange) -> Action:
    """Plan the folder: it is known by its uid, and who gives it another title may do so."""
    uid, title, was = wanted["uid"], wanted["title"], found.folder
    if was is None:
        return Action(Kind.CREATE, What.FOLDER, uid, title, wanted)
    changes = tuple(difference({"title": was.get("title")}, {"title": title}))
    if not changes:
        return Action(Kind.UNCHANGED, What.FOLDER, uid, title, was=was)
    return Action(
        _once(on_manual_change), What.FOLDER, uid, title, wanted, was, changes, "its title is a person's to choose"
    )


def plan_contact(shown: JSON, secret: JSON, found: Found, on_manual_change: OnManualChange) -> Action:
    """Plan the contact point: rules name it, so another one of its name serves as well."""
    uid, name = shown["uid"], shown["name"]
    was = next((one for one in found.contact_points if one.get("uid") == uid), None)
    if was is None:
        if any(one.get("name") == name for one in found.contact_points):
            return Action(Kind.KEPT, What.CONTACT, uid, name, reason="another one of this name exists, and is notified")
        return Action(Kind.CREATE, What.CONTACT, uid, name, secret)
    changes = tuple(_contact_changes(shown, secret, was))
    if not changes:
        return Action(Kind.UNCHANGED, What.CONTACT, uid, name, was=was)
    if was.get("provenance"):
        return Action(Kind.KEPT, What.CONTACT, uid, name, was=was, changes=changes, reason=PROVISIONED)
    reason = "only you can choose who is notified"
    return Action(_once(on_manual_change), What.CONTACT, uid, name, secret, was, changes, reason)


def _once(on_manual_change: OnManualChange) -> Kind:
    return Kind.UPDATE if on_manual_change == "overwrite" else Kind.KEPT


def _contact_changes(shown: JSON, secret: JSON, was: JSON) -> Iterator[Change]:
    """Yield what differs of what is wanted: Grafana fills in settings, and hides some. What is there is never told."""
    for field in ("name", "type", "disableResolveMessage"):
        yield from difference({field: was.get(field)}, {field: shown.get(field)})
    there = was.get("settings") or {}
    for field, value in secret["settings"].items():
        if there.get(field) not in (value, HIDDEN):
            yield Change("~", f"settings.{field}", f"… → {shown['settings'][field]}")


def removals(wanted: Resources, found: Found, on_manual_change: OnManualChange) -> Iterator[Action]:
    """Yield what is to be removed: rules before dashboards, and what they read last. Only what bears our mark."""
    owner = wanted.folder["uid"]
    titles = {group["title"] for group in wanted.rule_groups}
    for title, group in found.rule_groups.items():
        known = marks.group_mark(group)
        if title not in titles and known is not None and known.owner == owner:
            judged = group_verdict(group, known, same=False, moved="", on_manual_change=on_manual_change)
            yield _removal(What.RULES, title, title, judged, was=group)
    prefix = owner.removesuffix("folder")
    for uid, dashboard in found.dashboards.items():
        # One that a person saved has lost its mark: the uid, and the folder, tell that it was ours.
        ours = dashboard.folder_uid == owner and (uid.startswith(prefix) or marks.pushed(dashboard.message) is not None)
        if uid not in wanted.dashboards and ours:
            judged = dashboard_verdict(dashboard, owner, "", same=False, on_manual_change=on_manual_change)
            yield _removal(What.DASHBOARD, uid, dashboard.model.get("title", uid), judged, was=dashboard.model)
    uids = {one["uid"] for one in wanted.datasources}
    for uid, one in found.datasources.items():
        known = marks.datasource_mark(one)
        if uid not in uids and known is not None and known.owner == owner:
            judged = datasource_verdict(one, known, same=False, on_manual_change=on_manual_change)
            yield _removal(What.DATASOURCE, uid, one.get("name", uid), judged, was=one)


def _removal(what: What, uid: str, name: str, judged: Verdict, *, was: dict[str, object]) -> Action:
    kind, reason = judged
    kind = Kind.REMOVE if kind in (Kind.UNCHANGED, Kind.UPDATE) else kind
    return Action(kind, what, uid, name, was=was, reason=reason or "it is no longer wanted")


def plan(
    wanted: Resources,
    secret: Resources,
    found: Found,
    *,
    key: str,
    prune: bool = False,
    on_manual_change: OnManualChange = "refuse",
) -> list[Action]:
    """Return what is done, in the order in which it has to be done; each resource has one action.

    Args:
        wanted: with references in the place of secrets: what may be shown.
        secret: the same with the secrets.
        found: what is there.
        key: seals the digests of secrets; a secret that nobody who reads them has.
        prune: remove what an earlier push made and is no longer wanted.
        on_manual_change: what happens to what a person has changed.
    """
    owner = wanted.folder["uid"]

    def mark(shown: JSON, secret: JSON) -> marks.Mark:
        secrets = {
            **(secret.get("secureJsonData") or {}),
            **({"url": secret["url"]} if secret["url"] != shown["url"] else {}),
        }
        sealed = marks.seal(secrets, key) if secrets else marks.PENDING
        return marks.Mark(owner, marks.digest(shown), secrets=sealed)

    actions = [plan_folder(wanted.folder, found, on_manual_change)]
    for shown, one in zip(wanted.datasources, secret.datasources, strict=True):
        actions.append(_datasource(shown, one, found, mark(shown, one), on_manual_change))
    actions.append(plan_contact(wanted.contact_point, secret.contact_point, found, on_manual_change))
    actions += [_dashboard(model, found, owner, on_manual_change) for model in wanted.dashboards.values()]
    actions += [_rules(group, found, owner, on_manual_change) for group in wanted.rule_groups]
    return [*actions, *(removals(wanted, found, on_manual_change) if prune else ())]


def _datasource(shown: JSON, secret: JSON, found: Found, mark: marks.Mark, on_manual_change: OnManualChange) -> Action:
    uid, name, was = shown["uid"], shown["name"], found.datasources.get(shown["uid"])
    body = marks.mark_datasource(secret, mark)
    if was is None:
        other = next((uid for uid, one in found.datasources.items() if one.get("name") == name), None)
        if other is not None:
            reason = f"a data source of this name is there, with the uid {other}: give another --datasource-name"
            return Action(Kind.BLOCKED, What.DATASOURCE, uid, name, reason=reason)
        return Action(Kind.CREATE, What.DATASOURCE, uid, name, body)
    visible = {field: value for field, value in was.items() if field != "secureJsonFields"}
    changes = difference(marks.plain_datasource(visible), marks.plain_datasource(shown))
    kind, reason = datasource_verdict(was, mark, same=not changes, on_manual_change=on_manual_change)
    known = marks.datasource_mark(was)
    if known is not None and known.secrets != mark.secrets:
        changes.append(Change("~", "secureJsonData", "another secret, or another token of Grafana's: written again"))
        kind = Kind.UPDATE if kind is Kind.UNCHANGED else kind
    return Action(kind, What.DATASOURCE, uid, name, body, was, tuple(changes), reason)


def _dashboard(model: JSON, found: Found, owner: str, on_manual_change: OnManualChange) -> Action:
    uid, title, was = model["uid"], model["title"], found.dashboards.get(model["uid"])
    if was is None:
        return Action(Kind.CREATE, What.DASHBOARD, uid, title, model)
    changes = difference(marks.plain_dashboard(was.model), marks.plain_dashboard(model))
    if was.folder_uid != owner:
        changes.append(Change("~", "folder", f'"{was.folder_uid}" → "{owner}"'))
    kind, reason = dashboard_verdict(
        was, owner, marks.digest(model), same=not changes, on_manual_change=on_manual_change
    )
    return Action(kind, What.DASHBOARD, uid, title, model, was.model, tuple(changes), reason)


def _rules(group: JSON, found: Found, owner: str, on_manual_change: OnManualChange) -> Action:
    title, was = group["title"], found.rule_groups.get(group["title"])
    mark = marks.Mark(owner, marks.digest(group))
    body = marks.mark_group(group, mark)
    places = {rule["uid"]: found.rule_places.get(rule["uid"], (owner, title)) for rule in group["rules"]}
    moved = next((f"the rule {uid} is in the group {at[1]}" for uid, at in places.items() if at != (owner, title)), "")
    if was is None and not moved:
        return Action(Kind.CREATE, What.RULES, title, title, body)
    changes = difference(marks.plain_group(was or {}), marks.plain_group(group))
    kind, reason = group_verdict(was or {}, mark, same=not changes, moved=moved, on_manual_change=on_manual_change)
    return Action(kind, What.RULES, title, title, body, was or {}, tuple(changes), reason)
