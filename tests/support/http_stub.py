"""A stub of an HTTP server on loopback: a function answers each request."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple, Self


class Request(NamedTuple):
    """A request. The names of its headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    client_port: int


class Response(NamedTuple):
    """A response. Without `kind` it has no content type."""

    status: int = 200
    body: bytes = b""
    kind: str | None = None
    retry_after: str | None = None
    location: str | None = None


class HttpStub:
    """A server that answers requests with `answer`, from `start` to `stop` or within a block."""

    def __init__(self, answer: Callable[[Request], Response]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65_536  # headers and body in one segment, else a client's delayed acknowledgement costs 40 ms

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): ", ".join(self.headers.get_all(name, ())) for name in self.headers}
                response = answer(Request(self.command, self.path, headers, body, self.client_address[1]))
                self.send_response(response.status)
                length = str(len(response.body))
                names = ("Content-Type", "Retry-After", "Location", "Content-Length")
                for name, value in zip(names, (*response[2:], length), strict=True):
                    if value is not None:
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(response.body)

            do_GET = do_PUT = do_DELETE = do_POST  # noqa: N815 (the library's names)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
