"""The plan of a push: (what is wanted, what is there) → what is done with each resource. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.grafana.push import fingerprints as marks
from tallystream_dashboards.grafana.push.created_once import plan_contact, plan_folder
from tallystream_dashboards.grafana.push.decision import Hands, dashboard_verdict, datasource_verdict, group_verdict
from tallystream_dashboards.grafana.push.difference import Change, difference
from tallystream_dashboards.grafana.push.model import JSON, Action, Found, Kind, What
from tallystream_dashboards.grafana.push.remove import removals

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.resources import Resources


def plan(
    wanted: Resources, secret: Resources, found: Found, *, key: str, prune: bool = False, hands: Hands = "refuse"
) -> list[Action]:
    """Return what is done, in the order in which it has to be done; each resource has one action.

    Args:
        wanted: with references in the place of secrets: what may be shown.
        secret: the same with the secrets.
        found: what is there.
        key: seals the digests of secrets; a secret that nobody who reads them has.
        prune: remove what an earlier push made and is no longer wanted.
        hands: what becomes of what a person changed.
    """
    owner = wanted.folder["uid"]

    def mark(shown: JSON, secret: JSON) -> marks.Mark:
        secrets = {
            **(secret.get("secureJsonData") or {}),
            **({"url": secret["url"]} if secret["url"] != shown["url"] else {}),
        }
        sealed = marks.seal(secrets, key) if secrets else marks.PENDING
        return marks.Mark(owner, marks.digest(shown), secrets=sealed)

    actions = [plan_folder(wanted.folder, found, hands)]
    for shown, one in zip(wanted.datasources, secret.datasources, strict=True):
        actions.append(_datasource(shown, one, found, mark(shown, one), hands))
    actions.append(plan_contact(wanted.contact_point, secret.contact_point, found, hands))
    actions += [_dashboard(model, found, owner, hands) for model in wanted.dashboards.values()]
    actions += [_rules(group, found, owner, hands) for group in wanted.rule_groups]
    return [*actions, *(removals(wanted, found, hands) if prune else ())]


def _datasource(shown: JSON, secret: JSON, found: Found, mark: marks.Mark, hands: Hands) -> Action:
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
    kind, reason = datasource_verdict(was, mark, same=not changes, hands=hands)
    known = marks.datasource_mark(was)
    if known is not None and known.secrets != mark.secrets:
        changes.append(Change("~", "secureJsonData", "another secret, or another token of Grafana's: written again"))
        kind = Kind.UPDATE if kind is Kind.UNCHANGED else kind
    return Action(kind, What.DATASOURCE, uid, name, body, was, tuple(changes), reason)


def _dashboard(model: JSON, found: Found, owner: str, hands: Hands) -> Action:
    uid, title, was = model["uid"], model["title"], found.dashboards.get(model["uid"])
    if was is None:
        return Action(Kind.CREATE, What.DASHBOARD, uid, title, model)
    changes = difference(marks.plain_dashboard(was.model), marks.plain_dashboard(model))
    if was.folder_uid != owner:
        changes.append(Change("~", "folder", f'"{was.folder_uid}" → "{owner}"'))
    kind, reason = dashboard_verdict(was, owner, marks.digest(model), same=not changes, hands=hands)
    return Action(kind, What.DASHBOARD, uid, title, model, was.model, tuple(changes), reason)


def _rules(group: JSON, found: Found, owner: str, hands: Hands) -> Action:
    title, was = group["title"], found.rule_groups.get(group["title"])
    mark = marks.Mark(owner, marks.digest(group))
    body = marks.mark_group(group, mark)
    places = {rule["uid"]: found.rule_places.get(rule["uid"], (owner, title)) for rule in group["rules"]}
    moved = next((f"the rule {uid} is in the group {at[1]}" for uid, at in places.items() if at != (owner, title)), "")
    if was is None and not moved:
        return Action(Kind.CREATE, What.RULES, title, title, body)
    changes = difference(marks.plain_group(was or {}), marks.plain_group(group))
    kind, reason = group_verdict(was or {}, mark, same=not changes, moved=moved, hands=hands)
    return Action(kind, What.RULES, title, title, body, was or {}, tuple(changes), reason)
