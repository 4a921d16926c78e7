"""The sink of Graphite: writes points as lines of Carbon's plaintext protocol, over TCP.

A line has path, value and time, separated by blanks. A path ends with its tags as `;tag=value`. Carbon refuses an empty
tag, and `!`, `^` and `~` in some places, and creates a file named after the path. What it can't carry is
percent-encoded. Source: "Carbon" and "Graphite Tag Support" (graphite.readthedocs.io).
"""

from __future__ import annotations

import re
import socket
import string
import time
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import quote

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point, Rejections, SinkUnavailableError, free, numbers, refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PLAIN = string.ascii_letters + string.digits + "_-:/@+"
"""Characters that are not encoded. All others are encoded as bytes of UTF-8, including those with a meaning in
Graphite's functions."""

EMPTY = "%"
"""The code of the empty text. No other text has this code, because each % in a text becomes %25."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def encode_value(text: str) -> str:
    """Return the key or value of a tag as it is stored. Dots are kept."""
    return _quoted(text, PLAIN + ".") or EMPTY


def encode_path(text: str) -> str:
    """Return a metric's name as elements of a path. A dot that would make an empty element is encoded."""
    encoded = _quoted(text, PLAIN.replace("/", "").replace("+", "") + ".")
    encoded = re.sub(r"(?<=\.)\.|^\.|\.$", "%2E", encoded)
    return encoded or EMPTY


def require_prefix(prefix: str) -> None:
    """Check that the prefix is valid or empty.

    Raises:
        ConfigError: it is not valid.
    """
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            "--graphite-prefix", prefix, "use letters, digits, hyphens and underscores between single dots"
        )


def _quoted(text: str, safe: str) -> str:
    # quote() keeps the unreserved characters of RFC 3986, but in Graphite a value can't begin with ~.
    return quote(text, safe=safe).replace("~", "%7E")


TIMEOUT_S = 30.0
"""The longest wait for a send, and for Carbon to close the connection, in seconds."""
LONGEST_LINE = 16_000
"""In bytes. Carbon (Twisted's line receiver) closes the connection at a line of more than 16,384 bytes, so it loses the
lines after it."""
REPEAT_S = 60.0
REPEAT_BYTES = 16 * 1024 * 1024
KEEPALIVE_S = 30
"""Seconds between probes of an idle connection, so that no router forgets it. Not every system can set this."""
_LATEST_S = 2**32 - 1
"""In seconds. Whisper's timestamps have 32 bits."""
_NAME = frozenset({"name"})
"""The tag with which Graphite stores the path itself."""


class GraphiteSink:
    """Writes points to a Carbon at `host`:`port`.

    Level: every point, at 1 s resolution. Of several points in one second, the last one is stored. Carbon stores
    floats, so an integer beyond 2^53 is rounded. Text fields are left out. A point without a number is refused.

    Delivery: at least once, up to Carbon's memory. The protocol has no acknowledgement, so each write shuts down its
    connection and waits until Carbon closes its side, after it has read every line. When a write returns, Carbon's
    process has all lines; when it raises, Carbon may lack some. Carbon keeps the lines in memory until it writes them
    to its files, and loses them if it is killed before. So the sink keeps another connection open, on which it sends
    nothing. If Carbon has closed that, or after another failure, the next write first sends the lines of the last 60 s
    again (at most 16 MiB). Lines are lost if Carbon kept them in memory for longer, or if the shipper and Carbon die
    together. Carbon overwrites the value of a second, so a repeated write changes nothing.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        prefix: str = "",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._address = (host, port)
        self._prefix = f"{prefix}." if prefix else ""
        self._timeout_s = timeout_s
        self._watch: socket.socket | None = None
        self._lately: deque[tuple[float, bytes]] = deque()  # when, and what Carbon has read
        self._failed = False
        self.refusals = Rejections("Graphite")

    def setup(self) -> None:
        """Check that Carbon accepts connections.

        Raises:
            SinkUnavailableError: it does not.
        """
        try:
            self._connect().close()
        except OSError as error:
            raise self._unavailable(error) from error

    def write(self, points: Sequence[Point]) -> None:
        """Send the points in order, and return when Carbon has read every line.

        Raises:
            SinkUnavailableError: Carbon is unavailable, or does not read; write the points again.
        """
        lines = "".join(line for point in points for line in self._lines(point)).encode()
        try:
            if lines:
                self._send(lines)
        except OSError as error:
            self._unwatch()
            self._failed = True
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Close the connection. It is safe to call this again."""
        self._unwatch()

    def _send(self, lines: bytes) -> None:
        self._notice_restart()
        with self._connect() as connection:
            for _, earlier in self._lately if self._failed else ():
                connection.sendall(earlier)
            connection.sendall(lines)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
        self._failed = False
        self._lately.append((time.monotonic(), lines))
        self._forget()

    def _connect(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=self._timeout_s)

    def _notice_restart(self) -> None:
        """Treat a restart of Carbon since the last write as a failure. The restarted Carbon accepts connections."""
        if self._watch is not None and _is_closed(self._watch):
            self._failed = True
            self._unwatch()
        if self._watch is None:
            self._watch = self._connect()
            self._watch.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_KEEPIDLE"):
                self._watch.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
            self._watch.setblocking(False)

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _forget(self) -> None:
        size = sum(len(chunk) for _, chunk in self._lately)
        while self._lately and (size > REPEAT_BYTES or self._lately[0][0] < time.monotonic() - REPEAT_S):
            size -= len(self._lately.popleft()[1])

    def _unavailable(self, error: OSError) -> SinkUnavailableError:
        host, port = self._address
        return SinkUnavailableError(f"Graphite {host}:{port}: {error}.")

    def _lines(self, point: Point) -> Iterator[str]:
        lines, bad = list(lines_of(point, self._prefix)), _bad(point)
        if bad:
            self.refusals.add(point, bad)
        elif not lines:
            self.refusals.add(point, "it has no number")
        elif max(map(len, lines)) > LONGEST_LINE:
            self.refusals.add(point, f"its line is longer than {LONGEST_LINE} bytes")
        else:
            yield from lines


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection. The connection does not block."""
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def lines_of(point: Point, prefix: str = "") -> Iterator[str]:
    """Yield a line for each number of a point: path with tags, value, second. `prefix` is empty or ends in a dot."""
    pairs = ((free(key, _NAME), value) for key, value in point.tags.items())
    # Sorted as Graphite sorts them, because file names are made from the whole path.
    tags = "".join(sorted(f";{encode_value(key)}={encode_value(value)}" for key, value in pairs))
    for field, number in numbers(point).items():
        path = f"{prefix}{encode_path(point.measurement)}.{encode_path(field).replace('.', '%2E')}"
        yield f"{path}{tags} {number!r} {point.ts_ms // 1000}\n"


def _bad(point: Point) -> list[object]:
    # Carbon reads the time -1 as the current time.
    late = [] if 0 <= point.ts_ms // 1000 <= _LATEST_S else [f"the time {point.ts_ms}"]
    return [*refused(point), *late]
