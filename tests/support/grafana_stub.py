"""A stub of Grafana in memory, over HTTP on loopback, as strict as Grafana's documentation.

It refuses requests without the token, unknown paths and unknown fields, and lists them in `problems`. It adds fields,
versions and provenance as the documentation of Grafana's HTTP API says. Tests must not rely on what that documentation
does not say; tests/grafana tests a real Grafana.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from support.grafana_stub_state import GrafanaState, UnknownFieldError

if TYPE_CHECKING:
    from pathlib import Path

    from support.grafana_stub_state import JSON, Response

NOT_FOUND: Response = (404, {"message": "not found"})


class GrafanaStub:
    """A stub that runs from the start of a `with` block to its end.

    Args:
        token: the only valid token.
        path: the path of the reverse proxy.
        certificate: the server's certificate and its key; None: plain HTTP.
        clients: the CA certificate of the clients' certificates, which the server then requires.

    Attributes:
        writes: all requests that are not GET.
        versions_in_a_list: answer as Grafana before 11.3.
        redirect: redirect every request to this URL; empty: none.
        problems: requests that Grafana would not understand.
    """

    def __init__(
        self,
        token: str,
        *,
        path: str = "",
        certificate: tuple[Path, Path] | None = None,
        clients: Path | None = None,
    ) -> None:
        self.token, self.path = token, path
        self.state = GrafanaState()
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
                # With TLS 1.3 the rejection follows the handshake, and is lost if the connection is closed first.
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="grafana-stub")

    @property
    def url(self) -> str:
        """The URL."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}{self.path}"

    def fail(self, request: str, status: int, message: str) -> None:
        """Make the next request fail whose "METHOD PATH" matches the regular expression."""
        self._failures.append((request, status, {"message": message}))

    def respond(self, method: str, target: str, body: Any, headers: Any) -> Response:
        """Return the response to a request."""
        if self.redirect:
            return 301, {"location": self.redirect + target}
        parts = urlsplit(target)
        path, query = parts.path, parse_qs(parts.query)
        if not path.startswith(f"{self.path}/api/"):
            return NOT_FOUND
        path = path.removeprefix(f"{self.path}/api")
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

    def _route(  # noqa: C901, PLR0911, PLR0912 (one case for each path)
        self, method: str, path: list[str], query: JSON, body: Any, provenance: str
    ) -> Response:
        state = self.state
        match (method, *path):
            case ("GET", "health"):
                return 200, {"database": "ok", "version": "13.2.0"}
            case ("GET", "folders", uid):
                return _resource(state.folders.get(uid))
            case ("POST", "folders"):
                return state.create_folder(body)
            case ("PUT", "folders", uid):
                return state.update_folder(uid, body)
            case ("POST", "datasources"):
                return state.create_datasource(body)
            case ("GET", "datasources", "uid", uid):
                return _resource(state.datasources.get(uid))
            case ("PUT", "datasources", "uid", uid):
                return state.update_datasource(uid, body)
            case ("GET", "dashboards", "uid", uid):
                return _resource(state.dashboards.get(uid))
            case ("GET", "dashboards", "uid", uid, "versions"):
                versions = state.versions[uid][: int(query["limit"][0])]
                return 200, versions if self.versions_in_a_list else {"continueToken": "", "versions": versions}
            case ("POST", "dashboards", "db"):
                return state.save_dashboard(body, "sa-push")
            case ("GET", "v1", "provisioning", "folder", folder, "rule-groups", title):
                return _resource(state.group(folder, title))
            case ("PUT", "v1", "provisioning", "folder", folder, "rule-groups", title):
                return state.put_group(folder, title, body, provenance)
            case ("GET", "v1", "provisioning", "contact-points"):
                return 200, [state.contact(uid) for uid in state.contacts]
            case ("POST", "v1", "provisioning", "contact-points"):
                return state.create_contact(body, provenance)
            case ("PUT", "v1", "provisioning", "contact-points", uid):
                return state.update_contact(uid, body, provenance)
        self.problems.append(f"{method} {'/'.join(path)}: unknown")
        return NOT_FOUND

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _resource(resource: Any) -> Response:
    return NOT_FOUND if resource is None else (200, resource)


def _handler(stub: GrafanaStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65_536  # headers and body in one segment, else the client's delayed acknowledgement costs 40 ms

        def _respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            status, response = stub.respond(self.command, self.path, json.loads(body) if body else None, self.headers)
            content = b"" if status == 204 else json.dumps(response).encode()
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", response["location"])
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _respond  # noqa: N815 (the names are the library's)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
