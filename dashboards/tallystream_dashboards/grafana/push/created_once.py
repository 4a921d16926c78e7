"""The plan for what is made once and then a person's: the folder's title, and the contact point. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.grafana.push.decision import PROVISIONED, Hands
from tallystream_dashboards.grafana.push.difference import Change, difference
from tallystream_dashboards.grafana.push.model import JSON, Action, Found, Kind, What

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDDEN = "[REDACTED]"
"""What Grafana shows of a secret setting."""


def plan_folder(wanted: JSON, found: Found, hands: Hands) -> Action:
    """Plan the folder: it is known by its uid, and who gives it another title may do so."""
    uid, title, was = wanted["uid"], wanted["title"], found.folder
    if was is None:
        return Action(Kind.CREATE, What.FOLDER, uid, title, wanted)
    changes = tuple(difference({"title": was.get("title")}, {"title": title}))
    if not changes:
        return Action(Kind.UNCHANGED, What.FOLDER, uid, title, was=was)
    return Action(_once(hands), What.FOLDER, uid, title, wanted, was, changes, "its title is a person's to choose")


def plan_contact(shown: JSON, secret: JSON, found: Found, hands: Hands) -> Action:
    """Plan the contact point: rules name it, so another one of its name serves as well."""
    uid, name = shown["uid"], shown["name"]
    was = next((one for one in found.contact_points if one.get("uid") == uid), None)
    if was is None:
        if any(one.get("name") == name for one in found.contact_points):
            return Action(Kind.KEPT, What.CONTACT, uid, name, reason="another one of this name is there, and is told")
        return Action(Kind.CREATE, What.CONTACT, uid, name, secret)
    changes = tuple(_contact_changes(shown, secret, was))
    if not changes:
        return Action(Kind.UNCHANGED, What.CONTACT, uid, name, was=was)
    if was.get("provenance"):
        return Action(Kind.KEPT, What.CONTACT, uid, name, was=was, changes=changes, reason=PROVISIONED)
    reason = "whom to tell is a person's to choose"
    return Action(_once(hands), What.CONTACT, uid, name, secret, was, changes, reason)


def _once(hands: Hands) -> Kind:
    return Kind.UPDATE if hands == "overwrite" else Kind.KEPT


def _contact_changes(shown: JSON, secret: JSON, was: JSON) -> Iterator[Change]:
    """Yield what differs of what is wanted: Grafana fills in settings, and hides some. What is there is never told."""
    for field in ("name", "type", "disableResolveMessage"):
        yield from difference({field: was.get(field)}, {field: shown.get(field)})
    there = was.get("settings") or {}
    for field, value in secret["settings"].items():
        if there.get(field) not in (value, HIDDEN):
            yield Change("~", f"settings.{field}", f"… → {shown['settings'][field]}")
