"""A proxy in front of a real server that takes its time for every request, and notes what it saw."""

from __future__ import annotations

import gzip
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

KEPT = ("Authorization", "Content-Type", "Content-Encoding", "Accept")


class Passed(NamedTuple):
    """A request that went through: its path, its body's encoding, length and lines, and the answer's status."""

    path: str
    encoding: str
    size: int
    lines: int
    status: int


class SlowProxy:
    """Listens on a free port of loopback and hands every request on to `url`, `delay_s` seconds later."""

    def __init__(self, url: str, delay_s: float) -> None:
        self.delay_s = delay_s
        self.passed: list[Passed] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, url))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(proxy: SlowProxy, url: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            threading.Event().wait(proxy.delay_s)
            headers = {name: self.headers[name] for name in KEPT if self.headers[name]}
            request = urllib.request.Request(url + self.path, data=body, headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    status, kind, content = answer.status, answer.headers.get("Content-Type", ""), answer.read()
            except urllib.error.HTTPError as error:
                status, kind, content = error.code, error.headers.get("Content-Type", ""), error.read()
            encoding = self.headers.get("Content-Encoding", "")
            text = gzip.decompress(body) if encoding == "gzip" else body
            passed = Passed(self.path.partition("?")[0], encoding, len(body), sum(map(bool, text.splitlines())), status)
            proxy.passed.append(passed)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library's name)
            """Say nothing: what passed is kept."""

    return Handler
