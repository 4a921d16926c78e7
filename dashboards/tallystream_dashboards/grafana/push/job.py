"""The job of `tallystream dashboards push`: upload all resources to a Grafana server (docs/grafana.md)."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

from tallystream.errors import TallystreamError
from tallystream_aggregator.sinks.http import ClientCertificate
from tallystream_dashboards.grafana.push.client import TOKEN, Grafana
from tallystream_dashboards.grafana.push.secrets import Secrets
from tallystream_dashboards.grafana.resources import resources
from tallystream_dashboards.grafana.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tallystream_dashboards.grafana.resources import Resources

JSON = dict[str, Any]

ANNOTATION = "__tallystream_push__"
"""The digest of a rule's group. Grafana leaves annotations with names of this form out of notifications."""

MESSAGE = "tallystream dashboards push "
"""Before the digest of a dashboard, in the message of its version. A person who saves it creates another version."""


class PushRefusedError(TallystreamError):
    """Nothing was pushed, because it would overwrite what a person changed."""


class PushFailedError(TallystreamError):
    """Grafana failed during the push. The output says what was done; the same command can be run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """The settings of `tallystream dashboards push`; secrets come from the environment.

    With `force`, what a person changed is overwritten, and also the folder's title, the data source and the contact
    point.
    """

    url: str
    generate: Settings = field(default_factory=Settings)
    dry_run: bool = False
    force: bool = False
    ca_file: Path | None = None


class Action(NamedTuple):
    """What is done with one resource, by `write`. `reason` says why it is kept, or that a person changed it."""

    kind: Literal["created", "updated", "unchanged", "kept", "changed"]
    resource: str
    write: Callable[[], object] = lambda: None
    reason: str = ""

    def __str__(self) -> str:
        signs = {"created": "+", "updated": "~", "changed": "!"}
        return f"{signs.get(self.kind, '=')} {self.kind:<9} {self.resource}" + (f" ({self.reason})" * bool(self.reason))


def run(
    settings: PushSettings,
    output: Callable[[str], None],
    *,
    env: Mapping[str, str] | None = None,
    generate: Callable[[Settings], Resources] = resources,
) -> int:
    """Push, and return 0. A dry run returns 1 if the push would be refused.

    It reads everything before it writes; a second push writes nothing. `env` is the environment, by default that of the
    process; `generate` returns what is pushed.

    Raises:
        ConfigError: the URL, the token or a secret can't be used; nothing was written.
        PushRefusedError: a push would overwrite what a person changed; nothing was written.
        PushFailedError: Grafana failed during the push, or refused a request.
    """
    env = os.environ if env is None else env
    secrets = Secrets(env)
    token = secrets.get(TOKEN, "set it to the token of a service account")
    certificate = ClientCertificate.parse(env, "GRAFANA_CERT_FILE", "GRAFANA_KEY_FILE", "GRAFANA_KEY_PASSWORD")
    upload = _Upload(Grafana(settings.url, token, secrets, settings.ca_file, certificate), force=settings.force)
    actions = list(upload.actions(generate(settings.generate), secrets))
    changed = [action for action in actions if action.kind == "changed"]
    reasons = "; ".join(f"{action.resource}: {action.reason}" for action in changed)
    refusal = f"Nothing was pushed. {reasons}. --force overwrites what a person changed." if changed else ""
    if settings.dry_run:
        for action in actions:
            output(str(action))
        output(refusal or "Nothing was written.")
        return 1 if refusal else 0
    if refusal:
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


class _Upload:
    """Compares the resources with those of a server. Each method reads, and returns what writes."""

    def __init__(self, grafana: Grafana, *, force: bool) -> None:
        self._grafana, self._force = grafana, force

    def actions(self, desired: Resources, secrets: Secrets) -> Iterator[Action]:
        """Yield an action for each resource, each needing only those before it."""
        self._grafana.require_grafana()
        yield self._folder(desired.folder)
        source = desired.datasource
        resolved = {key: secrets.resolve(source[key]) for key in ("url", "secureJsonData") if key in source}
        yield self._datasource(source | resolved)
        contact = desired.contact_point
        yield self._contact_point(contact | {"settings": secrets.resolve(contact["settings"])})
        for model in desired.dashboards.values():
            yield self._dashboard(model, desired.folder["uid"])
        yield self._rule_group(desired.rule_group)

    def _folder(self, folder: JSON) -> Action:
        uid, title = folder["uid"], folder["title"]
        found = self._read("read the folder", f"/folders/{uid}")
        renamed = {"title": title, "overwrite": True}
        return self._created_once(
            f"folder {title} [{uid}]",
            found is not None,
            create=lambda: self._grafana.request("create a folder", "POST", "/folders", folder),
            update=lambda: self._grafana.request("rename the folder", "PUT", f"/folders/{uid}", renamed),
        )

    def _datasource(self, datasource: JSON) -> Action:
        uid, name = datasource["uid"], datasource["name"]
        path = f"/datasources/uid/{uid}"
        return self._created_once(
            f"data source {name} [{uid}]",
            self._read("read a data source", path) is not None,
            create=lambda: self._grafana.request("create a data source", "POST", "/datasources", datasource),
            update=lambda: self._grafana.request("change a data source", "PUT", path, datasource),
        )

    def _contact_point(self, contact: JSON) -> Action:
        """Rules refer to their contact point by name, so an existing one with the same name is kept."""
        uid, name, path = contact["uid"], contact["name"], "/v1/provisioning/contact-points"
        points = self._read("read the contact points", path) or []
        resource = f"contact point {name} [{uid}]"
        if any(one.get("name") == name and one.get("uid") != uid for one in points):
            return Action("kept", resource, reason="another one with this name exists, and is notified")
        return self._created_once(
            resource,
            any(one.get("uid") == uid for one in points),
            create=lambda: self._grafana.request("create a contact point", "POST", path, contact, editable=True),
            update=lambda: self._grafana.request(
                "change a contact point", "PUT", f"{path}/{uid}", contact, editable=True
            ),
        )

    def _created_once(
        self, resource: str, exists: bool, *, create: Callable[[], object], update: Callable[[], object]
    ) -> Action:
        """Return the action for a resource that people may change in Grafana once it exists."""
        if not exists:
            return Action("created", resource, create)
        if self._force:
            return Action("updated", resource, update)
        return Action("kept", resource, reason="it exists; --force writes it again")

    def _dashboard(self, model: JSON, folder_uid: str) -> Action:
        """Compare the message of the newest version."""
        uid, resource = model["uid"], f"dashboard {model['title']} [{model['uid']}]"
        found = self._read("read a dashboard", f"/dashboards/uid/{uid}")
        message = MESSAGE + _digest(model)
        body = {
            "dashboard": {**model, "id": None, "version": 0 if found is None else found["dashboard"]["version"]},
            "folderUid": folder_uid,
            "message": message,
            "overwrite": False,  # Grafana refuses if somebody saved it since it was read
        }

        def write() -> object:
            return self._grafana.request("save a dashboard", "POST", "/dashboards/db", body)

        if found is None:
            return Action("created", resource, write)
        answer = self._read("read a dashboard's versions", f"/dashboards/uid/{uid}/versions?limit=1")
        versions = answer.get("versions") if isinstance(answer, dict) else answer  # Grafana before 11.3: a list
        newest = str(versions[0].get("message")) if versions else ""
        reason = (
            "" if newest.startswith(MESSAGE) else f"it was last saved by {found['meta'].get('updatedBy') or 'a person'}"
        )
        if found["meta"].get("folderUid") != folder_uid:
            reason = "it was moved to another folder"
        return self._compared(resource, write, reason, same=newest == message)

    def _rule_group(self, group: JSON) -> Action:
        """Compare the digests. What is written here can't be edited in Grafana, so other rules are a person's."""
        title, digest = group["title"], _digest(group)
        path = f"/v1/provisioning/folder/{group['folderUid']}/rule-groups/{quote(title, safe='')}"
        found = self._read("read the alert rules", path)
        marked = [rule | {"annotations": rule["annotations"] | {ANNOTATION: digest}} for rule in group["rules"]]

        def write() -> object:
            return self._grafana.request("change a rule group", "PUT", path, group | {"rules": marked})

        if found is None:
            return Action("created", f"rule group {title}", write)
        rules = found["rules"]
        others = ", ".join(rule["title"] for rule in rules if rule.get("provenance") != "api")
        same = len(rules) == len(marked) and all(
            (rule.get("annotations") or {}).get(ANNOTATION) == digest for rule in rules
        )
        return self._compared(f"rule group {title}", write, f"no push wrote {others}" if others else "", same=same)

    def _compared(self, resource: str, write: Callable[[], object], reason: str, *, same: bool) -> Action:
        """Return the action for a resource that exists. `reason` says what a person changed, empty if nothing."""
        if reason and not self._force:
            return Action("changed", resource, reason=reason)
        return Action("unchanged", resource) if same and not reason else Action("updated", resource, write)

    def _read(self, operation: str, path: str) -> Any:
        return self._grafana.request(operation, "GET", path)


def _digest(value: JSON) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
