"""A stub of Grafana, and no Grafana: in memory, over real HTTP on loopback, as strict as its documentation.

It refuses what lacks the token, paths that it does not know and fields that Grafana does not know, and it says so in
`problems`. What it does to what it is given (fields filled in, versions, provenance) is what Grafana's documentation
of its HTTP API says; where that says nothing, tests must not rely on it. tests/grafana has the lane against a real one.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from support.grafana_store import GrafanaStore, UnknownFieldError

if TYPE_CHECKING:
    from pathlib import Path

    from support.grafana_store import JSON, Answer

ALL = (
    *("folders:create", "folders:write", "dashboards:create", "dashboards:write", "dashboards:delete"),
    *("datasources:create", "datasources:write", "datasources:delete", "alert.provisioning:write"),
)
NOT_FOUND: Answer = (404, {"message": "not found"})


class GrafanaStub:
    """Runs from the beginning of a `with` block to its end.

    `writes` are the requests that would change something, answered or not; `fail` lets one of them fail; `allowed` is
    what the token may do; `versions_in_a_list` answers as Grafana before 11.3 did; `redirect` is where all requests are
    sent, if anywhere. `certificate` is its own and its key; `clients` is the authority of its clients' certificates,
    which it then asks for.
    """

    def __init__(
        self,
        token: str,
        *,
        below: str = "",
        certificate: tuple[Path, Path] | None = None,
        clients: Path | None = None,
    ) -> None:
        self.token, self.below = token, below
        self.store = GrafanaStore()
        self.allowed: tuple[str, ...] | None = ALL
        self.versions_in_a_list = False
        self.redirect = ""
        self.writes: list[str] = []
        self.problems: list[str] = []
        self._failures: list[tuple[str, int, JSON]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._scheme = "http" if certificate is None else "https"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            if clients is not None:
                context.load_verify_locations(clients)
                context.verify_mode = ssl.CERT_REQUIRED
                # With TLS 1.3 the refusal follows the handshake, and is lost where we close the connection first.
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="grafana-stub")

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}{self.below}"

    def fail(self, request: str, status: int, message: str) -> None:
        """Let the next request that matches (method, a blank, path) fail."""
        self._failures.append((request, status, {"message": message}))

    def answer(self, method: str, target: str, body: Any, headers: Any) -> Answer:
        """Answer one request."""
        if self.redirect:
            return 301, {"location": self.redirect + target}
        parts = urlsplit(target)
        path, query = parts.path, parse_qs(parts.query)
        if not path.startswith(f"{self.below}/api/"):
            return NOT_FOUND
        path = path.removeprefix(f"{self.below}/api")
        if path != "/health" and headers.get("Authorization") != f"Bearer {self.token}":
            return 401, {"message": "Invalid API key"}
        if method != "GET":
            self.writes.append(f"{method} {unquote(path)}")
        for failure in self._failures:
            if re.fullmatch(failure[0], f"{method} {unquote(path)}"):
                self._failures.remove(failure)
                return failure[1:]
        provenance = "" if headers.get("X-Disable-Provenance") == "true" else "api"
        try:
            return self._route(method, [unquote(part) for part in path.strip("/").split("/")], query, body, provenance)
        except UnknownFieldError as error:
            self.problems.append(f"{method} {path}: {error}")
            return 400, {"message": str(error)}

    def _route(  # noqa: C901, PLR0911, PLR0912 (it is a table)
        self, method: str, path: list[str], query: JSON, body: Any, provenance: str
    ) -> Answer:
        store = self.store
        match (method, *path):
            case ("GET", "health"):
                return 200, {"database": "ok", "version": "13.2.0"}
            case ("GET", "access-control", "user", "permissions"):
                return NOT_FOUND if self.allowed is None else (200, {name: ["*"] for name in self.allowed})
            case ("GET", "folders", uid):
                return _found(store.folders.get(uid))
            case ("POST", "folders"):
                return store.create_folder(body)
            case ("PUT", "folders", uid):
                return store.update_folder(uid, body)
            case ("GET", "datasources"):
                hidden = ("secureJsonFields", "version")
                return 200, [{k: v for k, v in one.items() if k not in hidden} for one in store.datasources.values()]
            case ("POST", "datasources"):
                return store.create_datasource(body)
            case ("GET", "datasources", "uid", uid):
                return _found(store.datasources.get(uid))
            case ("PUT", "datasources", "uid", uid):
                return store.update_datasource(uid, body)
            case ("DELETE", "datasources", "uid", uid):
                return _found(store.datasources.pop(uid, None))
            case ("GET", "search") if query.keys() <= {"type", "folderUIDs", "limit"}:
                uids = query["folderUIDs"]
                return 200, [{"uid": k} for k, v in store.dashboards.items() if v["meta"]["folderUid"] in uids]
            case ("GET", "dashboards", "uid", uid):
                return _found(store.dashboards.get(uid))
            case ("DELETE", "dashboards", "uid", uid):
                return _found(store.dashboards.pop(uid, None))
            case ("GET", "dashboards", "uid", uid, "versions"):
                versions = store.versions[uid][: int(query["limit"][0])]
                return 200, versions if self.versions_in_a_list else {"continueToken": "", "versions": versions}
            case ("POST", "dashboards", "db"):
                return store.save_dashboard(body, "sa-push")
            case ("GET", "v1", "provisioning", "alert-rules"):
                return 200, list(store.rules.values())
            case ("DELETE", "v1", "provisioning", "alert-rules", uid):
                return (204, None) if store.rules.pop(uid, None) else NOT_FOUND
            case ("GET", "v1", "provisioning", "folder", folder, "rule-groups", title):
                return _found(store.group(folder, title))
            case ("PUT", "v1", "provisioning", "folder", folder, "rule-groups", title):
                return store.put_group(folder, title, body, provenance)
            case ("GET", "v1", "provisioning", "contact-points"):
                return 200, [store.contact(uid) for uid in store.contacts]
            case ("POST", "v1", "provisioning", "contact-points"):
                return store.create_contact(body, provenance)
            case ("PUT", "v1", "provisioning", "contact-points", uid):
                return store.update_contact(uid, body, provenance)
        self.problems.append(f"{method} {'/'.join(path)}: unknown")
        return NOT_FOUND

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _found(one: Any) -> Answer:
    return NOT_FOUND if one is None else (200, one)


def _handler(stub: GrafanaStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65_536  # head and body in one segment: else the client's delayed acknowledgement costs 40 ms

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            given = self.rfile.read(length)
            status, answer = stub.answer(self.command, self.path, json.loads(given) if given else None, self.headers)
            content = b"" if status == 204 else json.dumps(answer).encode()
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", answer["location"])
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 (the names are the library's)

        def log_message(self, *_: object) -> None:
            """Say nothing: the tests' output is for the tests."""

    return Handler
