"""The state of the stub of Grafana, and its responses: statuses, versions and provenance as Grafana documents them.

A handler takes the body and returns (status, response). It refuses unknown fields, of which Grafana ignores some.
"""

from __future__ import annotations

import copy
from typing import Any

JSON = dict[str, Any]
Response = tuple[int, Any]

FOLDER = {"uid", "title", "parentUid"}
DATASOURCE = {"id", "uid", "orgId", "name", "type", "access", "url", "user", "database", "basicAuth", "basicAuthUser"}
DATASOURCE |= {"withCredentials", "isDefault", "jsonData", "secureJsonData", "version", "readOnly"}
SAVE = {"dashboard", "folderUid", "message", "overwrite"}
GROUP = {"title", "folderUid", "interval", "rules"}
RULE = {"id", "uid", "orgID", "folderUID", "ruleGroup", "title", "condition", "data", "updated", "noDataState"}
RULE |= {"execErrState", "for", "annotations", "labels", "provenance", "isPaused", "notification_settings", "record"}
RULE |= {"keep_firing_for", "missing_series_evals_to_resolve"}
QUERY = {"refId", "queryType", "relativeTimeRange", "datasourceUid", "model"}
CONTACT = {"uid", "name", "type", "settings", "disableResolveMessage", "provenance"}
HIDDEN = {"password", "authorization_credentials"}
MISMATCH = {"message": "The dashboard has been changed by someone else", "status": "version-mismatch"}


class UnknownFieldError(Exception):
    """A body has a field that Grafana does not know."""


class GrafanaState:
    """The state of one organization; `secrets` are the decrypted secrets of its data sources, by uid."""

    def __init__(self) -> None:
        self.folders: dict[str, JSON] = {}
        self.datasources: dict[str, JSON] = {}
        self.secrets: dict[str, JSON] = {}
        self.dashboards: dict[str, JSON] = {}
        self.versions: dict[str, list[JSON]] = {}
        self.rules: dict[str, JSON] = {}
        self.intervals: dict[tuple[str, str], int] = {}
        self.contacts: dict[str, JSON] = {}
        self._ids = 0

    def create_folder(self, body: JSON) -> Response:
        """POST /api/folders."""
        require_known(body, FOLDER)
        if body["uid"] in self.folders:
            return 412, {"message": "The folder has been changed by someone else", "status": "version-mismatch"}
        self.folders[body["uid"]] = {**body, "id": self._id(), "version": 1}
        return 200, self.folders[body["uid"]]

    def update_folder(self, uid: str, body: JSON) -> Response:
        """PUT /api/folders/:uid."""
        require_known(body, {"title", "version", "overwrite"})
        if not body.get("overwrite") and body.get("version") != self.folders[uid]["version"]:
            return 412, {"message": "The folder has been changed by someone else", "status": "version-mismatch"}
        self.folders[uid] |= {"title": body["title"], "version": self.folders[uid]["version"] + 1}
        return 200, self.folders[uid]

    def create_datasource(self, body: JSON) -> Response:
        """POST /api/datasources."""
        require_known(body, DATASOURCE)
        if body["uid"] in self.datasources or any(one["name"] == body["name"] for one in self.datasources.values()):
            return 409, {"message": "data source with the same name already exists"}
        self._store_datasource(body, self._id(), 1)
        return 200, {"datasource": self.datasources[body["uid"]], "message": "Datasource added", "name": body["name"]}

    def update_datasource(self, uid: str, body: JSON) -> Response:
        """PUT /api/datasources/uid/:uid."""
        require_known(body, DATASOURCE)
        was = self.datasources[uid]
        if was["readOnly"]:
            return 403, {"message": "Cannot update read-only data source"}
        if body.get("version") not in (None, 0, was["version"]):
            return 409, {"message": "Datasource has already been updated by someone else. Please reload and try again"}
        self._store_datasource(body, was["id"], was["version"] + 1)
        return 200, {"datasource": self.datasources[uid], "message": "Datasource updated", "name": body["name"]}

    def _store_datasource(self, body: JSON, number: int, version: int) -> None:
        uid = body["uid"]
        secrets = self.secrets.setdefault(uid, {})
        secrets |= body.get("secureJsonData") or {}
        filled = {"user": "", "database": "", "basicAuth": False, "basicAuthUser": "", "withCredentials": False}
        kept = {key: value for key, value in body.items() if key != "secureJsonData"}
        servers = {"id": number, "orgId": 1, "typeLogoUrl": "", "version": version, "readOnly": False}
        fields = {"secureJsonFields": dict.fromkeys(secrets, True)}
        self.datasources[uid] = copy.deepcopy(filled | kept | servers | fields)

    def save_dashboard(self, body: JSON, by: str) -> Response:
        """POST /api/dashboards/db, by this user."""
        require_known(body, SAVE)
        model = body["dashboard"]
        was = self.dashboards.get(model["uid"])
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        if was is not None and was["meta"]["provisioned"]:
            return 400, {"message": "Cannot save provisioned dashboard"}
        if was is not None and not body.get("overwrite") and model.get("version") != was["dashboard"]["version"]:
            return 412, MISMATCH
        version = 1 if was is None else was["dashboard"]["version"] + 1
        kept = copy.deepcopy(model) | {"id": self._id() if was is None else was["dashboard"]["id"], "version": version}
        meta = {
            "folderUid": body["folderUid"],
            "provisioned": False,
            "updatedBy": by,
            "updated": "2026-01-01T00:00:00Z",
        }
        self.dashboards[model["uid"]] = {"dashboard": kept, "meta": meta}
        entry = {"version": version, "message": body.get("message", ""), "createdBy": by, "uid": model["uid"]}
        self.versions.setdefault(model["uid"], []).insert(0, entry)
        return 200, {"uid": model["uid"], "status": "success", "version": version}

    def group(self, folder: str, title: str) -> JSON | None:
        """GET a rule group, None if it does not exist."""
        rules = [one for one in self.rules.values() if (one["folderUID"], one["ruleGroup"]) == (folder, title)]
        if not rules:
            return None
        return {"title": title, "folderUid": folder, "interval": self.intervals[folder, title], "rules": rules}

    def put_group(self, folder: str, title: str, body: JSON, provenance: str) -> Response:
        """PUT a rule group: rules that are no longer in it are deleted."""
        require_known(body, GROUP)
        if folder not in self.folders or body["interval"] % 10:
            return 400, {"message": "invalid alert rule group"}
        for rule in body["rules"]:
            require_known(rule, RULE)
            was = self.rules.get(rule["uid"])
            if was is not None and was["provenance"] not in ("", provenance):
                return 409, {"message": f"cannot change provenance from '{was['provenance']}' to '{provenance}'"}
        kept = {rule["uid"] for rule in body["rules"]}
        current = self.group(folder, title)
        for removed in {rule["uid"] for rule in (current["rules"] if current else ())} - kept:
            del self.rules[removed]
        for rule in body["rules"]:
            self.rules[rule["uid"]] = self._rule(rule, folder, title, provenance)
        self.intervals[folder, title] = body["interval"]
        return 200, self.group(folder, title)

    def _rule(self, rule: JSON, folder: str, title: str, provenance: str) -> JSON:
        data = []
        for query in rule["data"]:
            require_known(query, QUERY)
            data.append(
                {"queryType": "", **query, "model": {"intervalMs": 1000, "maxDataPoints": 43200, **query["model"]}}
            )
        servers = {"id": self._id(), "orgID": 1, "updated": f"2026-01-01T00:00:{self._ids % 60:02}Z", "data": data}
        servers |= {"folderUID": folder, "ruleGroup": title, "provenance": provenance, "for": duration(rule["for"])}
        return copy.deepcopy({"isPaused": False, "notification_settings": None, **rule, **servers})

    def create_contact(self, body: JSON, provenance: str) -> Response:
        """POST a contact point."""
        require_known(body, CONTACT)
        if body["uid"] in self.contacts:
            return 409, {"message": "receiver configuration with UID already exists"}
        self.contacts[body["uid"]] = copy.deepcopy({**body, "provenance": provenance})
        return 202, self.contact(body["uid"])

    def update_contact(self, uid: str, body: JSON, provenance: str) -> Response:
        """PUT a contact point."""
        require_known(body, CONTACT)
        if self.contacts[uid]["provenance"] not in ("", provenance):
            return 500, {"message": f"cannot change provenance from '{self.contacts[uid]['provenance']}' to ''"}
        self.contacts[uid] = copy.deepcopy({**body, "uid": uid, "provenance": provenance})
        return 202, {"message": "contactpoint updated"}

    def contact(self, uid: str) -> JSON:
        """GET a contact point, with default settings and without secrets."""
        one = self.contacts[uid]
        settings = {key: "[REDACTED]" if key in HIDDEN else value for key, value in one["settings"].items()}
        return one | {"settings": {"httpMethod": "POST", **settings} if one["type"] == "webhook" else settings}

    def _id(self) -> int:
        self._ids += 1
        return self._ids


def require_known(body: JSON, fields: set[str]) -> None:
    """Refuse fields that Grafana does not know."""
    unknown = body.keys() - fields
    if unknown:
        raise UnknownFieldError(f"unknown fields: {sorted(unknown)}")


def duration(text: str) -> str:
    """Return a duration as Grafana writes it: 5m for 300s."""
    seconds = int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]
    size, unit = next(
        ((size, unit) for size, unit in ((3600, "h"), (60, "m")) if seconds and not seconds % size), (1, "s")
    )
    return f"{seconds // size}{unit}"
