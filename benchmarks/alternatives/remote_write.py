"""A receiver for Prometheus remote write 1.0. It keeps the newest value of each series by name.

The format is WriteRequest of the Prometheus Remote-Write 1.0 specification: protobuf in Snappy's block format.
"""

from __future__ import annotations

import struct
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Self

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at offset `at`, and the offset after it."""
    number, shift = 0, 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield (number, value) of each field of a protobuf message. A value is bytes or an integer."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
            continue
        size, at = (8, at) if kind == 1 else varint(data, at)
        yield tag >> 3, data[at : at + size]
        at += size


def samples(body: bytes) -> Iterator[tuple[str, float]]:
    """Yield (name, value) of each sample in the body of a request."""
    size, _ = varint(body, 0)
    raw = pa.decompress(body, decompressed_size=size, codec="snappy", asbytes=True)
    for number, series in fields(raw):
        if number != 1 or not isinstance(series, bytes):
            continue
        name, values = "", []
        for part, data in fields(series):
            if not isinstance(data, bytes):
                continue
            inner = dict(fields(data))
            if part == 1 and inner.get(1) == b"__name__":
                text = inner[2]
                name = text.decode() if isinstance(text, bytes) else ""
            elif part == 2:
                packed = inner.get(1, bytes(8))  # protobuf omits a value of zero
                values.append(struct.unpack("<d", packed)[0] if isinstance(packed, bytes) else 0.0)
        for value in values:
            yield name, value


class Receiver:
    """Listens on a free loopback port until the block ends. `newest` is name → value."""

    def __init__(self) -> None:
        self.newest: dict[str, float] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.newest.update(samples(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/write"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
