"""A stub of Grafana in memory, over HTTP on loopback.

It refuses requests without the token, unknown paths and unknown fields, and lists them in `problems`. Versions and
provenance are as the documentation of Grafana's HTTP API says; tests/grafana tests a real Grafana.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from support import http_stub
from support.http_stub import HttpStub, Request

JSON = dict[str, Any]
Response = tuple[int, Any]

TOKEN = "glsa_the-token-of-grafana"
"""The only valid token."""
ENV = {"GRAFANA_TOKEN": TOKEN}
NOT_FOUND: Response = (404, {"message": "not found"})
FOLDER = {"uid", "title", "parentUid"}
SAVE = {"dashboard", "folderUid", "message", "overwrite"}
GROUP = {"title", "folderUid", "interval", "rules"}


class UnknownFieldError(Exception):
    """A body has a field that Grafana does not know."""


class GrafanaState:
    """The state of one organization, which has the data sources that are generated."""

    def __init__(self) -> None:
        self.folders: dict[str, JSON] = {}
        self.datasources: dict[str, JSON] = {
            uid: {"uid": uid} for uid in ("tallystream-flux", "tallystream-prometheus")
        }
        self.dashboards: dict[str, JSON] = {}
        self.versions: dict[str, list[JSON]] = {}
        self.rules: dict[str, JSON] = {}
        self.intervals: dict[tuple[str, str], int] = {}

    def create_folder(self, uid: str, body: JSON) -> Response:
        require_known(body, FOLDER)
        self.folders[uid] = {"uid": uid, "title": body["title"]}
        return 200, self.folders[uid]

    def save_dashboard(self, body: JSON, by: str) -> Response:
        """Save a dashboard as this user, if the version is the newest one."""
        require_known(body, SAVE)
        model = body["dashboard"]
        was = self.dashboards.get(model["uid"])
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        newest = 0 if was is None else was["dashboard"]["version"]
        if model.get("version") != newest:
            return 412, {"message": "The dashboard has been changed by someone else", "status": "version-mismatch"}
        meta = {"folderUid": body["folderUid"], "updatedBy": by}
        self.dashboards[model["uid"]] = {"dashboard": model | {"version": newest + 1}, "meta": meta}
        self.versions.setdefault(model["uid"], []).insert(0, {"version": newest + 1, "message": body["message"]})
        return 200, {"uid": model["uid"], "status": "success", "version": newest + 1}

    def group(self, folder: str, title: str) -> JSON | None:
        """Return a rule group, None if it does not exist."""
        rules = [one for one in self.rules.values() if (one["folderUID"], one["ruleGroup"]) == (folder, title)]
        return {"title": title, "folderUid": folder, "rules": rules} if rules else None

    def put_group(self, folder: str, title: str, body: JSON) -> Response:
        """Write a rule group, which people can't edit then: rules that are no longer in it are deleted."""
        require_known(body, GROUP)
        if folder not in self.folders or body["interval"] % 10:
            return 400, {"message": "invalid alert rule group"}
        for rule in (self.group(folder, title) or {"rules": []})["rules"]:
            del self.rules[rule["uid"]]
        for rule in body["rules"]:
            self.rules[rule["uid"]] = rule | {"provenance": "api"}
        self.intervals[folder, title] = body["interval"]
        return 200, self.group(folder, title)


def require_known(body: JSON, fields: set[str]) -> None:
    """Refuse fields that Grafana does not know."""
    unknown = body.keys() - fields
    if unknown:
        raise UnknownFieldError(f"unknown fields: {sorted(unknown)}")


class GrafanaStub(HttpStub):
    """A stub that runs from the start of a `with` block to its end.

    Args:
        path: the path of the reverse proxy.
        certificate: the server's certificate and its key; None: plain HTTP.

    Attributes:
        writes: all requests that are not GET.
        versions_in_a_list: answer as Grafana before 11.3.
        redirect: redirect every request to this URL; empty: none.
        problems: requests that Grafana would not understand.
    """

    def __init__(self, *, path: str = "", certificate: tuple[Path, Path] | None = None) -> None:
        super().__init__(self._answer)
        self.path = path
        self.state = GrafanaState()
        self.versions_in_a_list = False
        self.redirect = ""
        self.writes: list[str] = []
        self.problems: list[str] = []
        self._failures: list[tuple[str, int, JSON]] = []
        self._scheme = "http" if certificate is None else "https"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self.address}{self.path}"

    def fail(self, request: str, status: int, message: str) -> None:
        """Make the next request fail whose "METHOD PATH" matches the regular expression."""
        self._failures.append((request, status, {"message": message}))

    def _answer(self, request: Request) -> http_stub.Response:
        if self.redirect:
            return http_stub.Response(301, location=self.redirect + request.path)
        body = json.loads(request.body) if request.body else None
        status, content = self._respond(request.method, request.path, body, request.headers)
        return http_stub.Response(status, json.dumps(content).encode(), "application/json; charset=UTF-8")

    def _respond(self, method: str, target: str, body: Any, headers: Mapping[str, str]) -> Response:
        path = unquote(urlsplit(target).path)
        if not path.startswith(f"{self.path}/api/"):
            return NOT_FOUND
        path = path.removeprefix(f"{self.path}/api")
        if path != "/health" and headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "Invalid API key"}
        if method != "GET":
            self.writes.append(f"{method} {path}")
        for failure in self._failures:
            if re.fullmatch(failure[0], f"{method} {path}"):
                self._failures.remove(failure)
                return failure[1:]
        try:
            return self._route(method, path.strip("/").split("/"), body)
        except UnknownFieldError as error:
            self.problems.append(f"{method} {path}: {error}")
            return 400, {"message": str(error)}

    def _route(self, method: str, path: list[str], body: Any) -> Response:  # noqa: PLR0911 (one case for each path)
        state = self.state
        match (method, *path):
            case ("GET", "health"):
                return 200, {"database": "ok", "version": "13.2.0"}
            case ("GET", "folders", uid):
                return _resource(state.folders.get(uid))
            case ("POST", "folders"):
                return state.create_folder(body["uid"], body)
            case ("GET", "datasources", "uid", uid):
                return _resource(state.datasources.get(uid))
            case ("GET", "dashboards", "uid", uid):
                return _resource(state.dashboards.get(uid))
            case ("GET", "dashboards", "uid", uid, "versions"):
                versions = state.versions[uid][:1]
                return 200, versions if self.versions_in_a_list else {"continueToken": "", "versions": versions}
            case ("POST", "dashboards", "db"):
                return state.save_dashboard(body, "sa-push")
            case ("GET", "v1", "provisioning", "folder", folder, "rule-groups", title):
                return _resource(state.group(folder, title))
            case ("PUT", "v1", "provisioning", "folder", folder, "rule-groups", title):
                return state.put_group(folder, title, body)
        self.problems.append(f"{method} {'/'.join(path)}: unknown")
        return NOT_FOUND


def _resource(resource: Any) -> Response:
    return NOT_FOUND if resource is None else (200, resource)
