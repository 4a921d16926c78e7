"""The job of `tallystream dashboards push`: upload dashboards and alert rules to a Grafana server (docs/grafana.md)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

from tallystream.errors import ConfigError, TallystreamError
from tallystream_dashboards.grafana.generate import dashboards, rule_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream_dashboards.grafana.client import Grafana
    from tallystream_dashboards.grafana.settings import Settings

JSON = dict[str, Any]

MESSAGE = "tallystream dashboards push "
"""Before the digest of a dashboard, in the message of its version. A person who saves it creates another version."""


class PushRefusedError(TallystreamError):
    """Nothing was pushed, because it would overwrite what a person changed."""


class PushFailedError(TallystreamError):
    """Grafana failed during the push. The output says what was done; the same command can be run again."""


class Action(NamedTuple):
    """What is done with one resource, by `write`. `changed` says what a person changed; empty: nothing."""

    kind: Literal["created", "updated", "unchanged"]
    resource: str
    write: Callable[[], object] = lambda: None
    changed: str = ""

    def __str__(self) -> str:
        signs = {"created": "+", "updated": "~", "unchanged": "="}
        return f"{signs[self.kind]} {self.kind:<9} {self.resource}" + (f" ({self.changed})" if self.changed else "")


def run(
    grafana: Grafana,
    settings: Settings,
    output: Callable[[str], None],
    *,
    contact_point: str = "",
    dry_run: bool = False,
    force: bool = False,
) -> int:
    """Push, and return 0. A dry run returns 1 if the push would be refused.

    It reads everything before it writes. A second push saves no dashboard, and writes the same rules. The rules notify
    the `contact_point` with this name; empty: Grafana's notification policies say who is notified. With `force`, what a
    person changed is overwritten.

    Raises:
        ConfigError: the server, the token or the data source can't be used; nothing was written.
        PushRefusedError: a push would overwrite what a person changed; nothing was written.
        PushFailedError: Grafana failed during the push, or refused a request.
    """
    actions = list(_actions(grafana, settings, contact_point))
    changed = "; ".join(f"{action.resource}: {action.changed}" for action in actions if action.changed)
    refusal = f"Nothing was pushed. {changed}. --force overwrites what a person changed."
    refused = bool(changed) and not force
    if dry_run:
        for action in actions:
            output(str(action))
        output(refusal if refused else "Nothing was written.")
        return int(refused)
    if refused:
        raise PushRefusedError(refusal)
    for action in actions:
        try:
            action.write()
        except TallystreamError as error:
            raise PushFailedError(
                f"{action.resource}: {error} Run the same command again: it does the rest."
            ) from error
        output(str(action))
    counts = Counter(action.kind for action in actions)
    output("Done: " + ", ".join(f"{number} {kind}" for kind, number in counts.items()) + ".")
    return 0


def _actions(grafana: Grafana, settings: Settings, contact_point: str) -> Iterator[Action]:
    """Read from the server, and yield an action for each resource, each needing only those before it."""
    grafana.require_grafana()
    source = settings.source_uid
    if grafana.request("read a data source", "GET", f"/datasources/uid/{quote(source, safe='')}") is None:
        remedy = "Grafana has no data source with this uid: add one (docs/grafana.md), or give the uid of yours"
        raise ConfigError("--datasource-uid", source, remedy)
    folder = {"uid": f"{settings.uid_prefix}-folder", "title": settings.folder_title}
    yield _folder(grafana, folder)
    for model in dashboards(settings).values():
        yield _dashboard(grafana, model, folder["uid"])
    yield _rules(grafana, rule_group(settings), folder["uid"], contact_point)


def _folder(grafana: Grafana, folder: JSON) -> Action:
    """Return the action for the folder, which people may rename once it exists."""
    resource = f"folder {folder['title']} [{folder['uid']}]"
    if grafana.request("read the folder", "GET", f"/folders/{folder['uid']}") is not None:
        return Action("unchanged", resource)
    return Action("created", resource, lambda: grafana.request("create a folder", "POST", "/folders", folder))


def _dashboard(grafana: Grafana, model: JSON, folder_uid: str) -> Action:
    """Return the action for a dashboard: the message of its newest version says who saved it, and what."""
    path, resource = f"/dashboards/uid/{model['uid']}", f"dashboard {model['title']} [{model['uid']}]"
    digest = hashlib.sha256(json.dumps(model, sort_keys=True).encode()).hexdigest()[:16]
    found = grafana.request("read a dashboard", "GET", path)
    body = {
        "dashboard": {**model, "id": None, "version": 0 if found is None else found["dashboard"]["version"]},
        "folderUid": folder_uid,
        "message": MESSAGE + digest,
        "overwrite": False,  # Grafana refuses if somebody saved it since it was read
    }

    def write() -> object:
        return grafana.request("save a dashboard", "POST", "/dashboards/db", body)

    if found is None:
        return Action("created", resource, write)
    answer = grafana.request("read a dashboard's versions", "GET", f"{path}/versions?limit=1")
    versions = answer.get("versions") if isinstance(answer, dict) else answer  # Grafana before 11.3: a list
    newest = str(versions[0].get("message")) if versions else ""
    if found["meta"].get("folderUid") != folder_uid:
        return Action("updated", resource, write, "it was moved to another folder")
    if not newest.startswith(MESSAGE):
        return Action(
            "updated", resource, write, f"it was last saved by {found['meta'].get('updatedBy') or 'a person'}"
        )
    return Action("unchanged", resource) if newest == body["message"] else Action("updated", resource, write)


def _rules(grafana: Grafana, group: JSON, folder_uid: str, contact_point: str) -> Action:
    """Return the action for the alert rules. What is written here can't be edited in Grafana: others are a person's."""
    title = group["name"]
    path = f"/v1/provisioning/folder/{folder_uid}/rule-groups/{quote(title, safe='')}"
    rules = [_api_rule(rule, title, folder_uid, contact_point) for rule in group["rules"]]
    interval_s = int(group["interval"].removesuffix("s"))
    body = {"title": title, "folderUid": folder_uid, "interval": interval_s, "rules": rules}
    found = grafana.request("read the alert rules", "GET", path)
    others = ", ".join(rule["title"] for rule in (found or {"rules": ()})["rules"] if rule.get("provenance") != "api")
    return Action(
        "created" if found is None else "updated",
        f"rule group {title}",
        lambda: grafana.request("change a rule group", "PUT", path, body),
        f"no push wrote {others}" if others else "",
    )


def _api_rule(rule: JSON, group: str, folder_uid: str, contact_point: str) -> JSON:
    """Return a rule of a provisioning file as the HTTP API takes it: its panel is in annotations."""
    fields = {**rule, "orgID": 1, "folderUID": folder_uid, "ruleGroup": group}
    panel = {"__dashboardUid__": fields.pop("dashboardUid"), "__panelId__": str(fields.pop("panelId"))}
    del fields["notification_settings"]
    if contact_point:
        fields["notification_settings"] = {"receiver": contact_point}
    return fields | {"annotations": rule["annotations"] | panel}
