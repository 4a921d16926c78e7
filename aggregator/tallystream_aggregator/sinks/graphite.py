"""Graphite: points as lines of Carbon's plaintext protocol, over TCP.

Source of what Carbon's text can't carry, and is percent-encoded: "Carbon" and "Graphite Tag Support"
(graphite.readthedocs.io). A line is path, value and time between blanks, a path ends with its tags as `;tag=value`;
Carbon refuses the empty tag, `!`, `^` and `~` in some places, and creates a file named like the path.
"""

from __future__ import annotations

import re
import socket
import string
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point, Rejections, SinkUnavailableError, free, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PLAIN = string.ascii_letters + string.digits + "_-:/@+"
"""What is kept. All else is encoded, as bytes of UTF-8: what has a meaning in Graphite's functions, too."""

EMPTY = "%"
"""An empty text: no other text encodes to this, since each % in one becomes %25."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def encode_value(text: str) -> str:
    """Return a tag's key or value as it is stored; a dot stays."""
    return _quoted(text, PLAIN + ".") or EMPTY


def encode_path(text: str) -> str:
    """Return a metric's name as the elements of a path: a dot that would make an empty element is encoded."""
    encoded = _quoted(text, PLAIN.replace("/", "").replace("+", "") + ".")
    encoded = re.sub(r"(?<=\.)\.|^\.|\.$", "%2E", encoded)
    return encoded or EMPTY


def decode(stored: str) -> str:
    """Return the text that was stored: the inverse of both."""
    return "" if stored == EMPTY else unquote(stored)


def require_prefix(prefix: str) -> None:
    """Return where the prefix is one, or empty.

    Raises:
        ConfigError: it is not.
    """
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            "--graphite-prefix", prefix, "use letters, digits, hyphens and underscores between single dots"
        )


def _quoted(text: str, safe: str) -> str:
    # quote() keeps what RFC 3986 calls unreserved, of which ~ may not begin a value in Graphite.
    return quote(text, safe=safe).replace("~", "%7E")


TIMEOUT_S = 30.0
"""How long one send, or Carbon's end of the connection, is waited for."""
CHUNK = 1_000
"""Points in one send."""
LONGEST_LINE = 16_000
"""Carbon (Twisted's line receiver) ends a connection over a line of more than 16,384 bytes, and loses what follows."""
REPEAT_S = 60.0
REPEAT_BYTES = 16 * 1024 * 1024
_LATEST_S = 2**32 - 1
"""Whisper's times have 32 bits."""
_NAME = frozenset({"name"})
"""The tag that Graphite gives the path itself."""


class GraphiteSink:
    """Writes points to a Carbon at `host`:`port`.

    Level: every point, at 1 s resolution: of several in one second the last one stays. Carbon has floats: a whole
    number beyond 2^53 is rounded. A text field is left out; a point with no number at all is refused.

    Delivery: at least once, as far as the protocol goes. It has no acknowledgement, so each flush ends the connection
    and waits for Carbon to end its side, which it does when it has read every line: a flush that returns says that
    Carbon's process has them all, one that raises says that it may not. Carbon then holds them in its own memory until
    it has written them to its files. Killed before that it loses them, and no client can know; so, after any failure,
    the first connection carries once more what was written in the 60 s before (16 MiB of it at most). What Carbon held
    longer than that is lost with it, and so is what it held when shipper and Carbon die together. Carbon overwrites a
    second that it has, so a repeated write changes nothing.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        prefix: str = "",
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = (host, port)
        self._prefix = f"{prefix}." if prefix else ""
        self._timeout_s = timeout_s
        self._clock = clock
        self._socket: socket.socket | None = None
        self._sent: list[bytes] = []
        self._lately: deque[tuple[float, bytes]] = deque()
        self._failed = False
        self.refusals = Rejections("Graphite")

    @property
    def rejected(self) -> int:
        """How many points were refused permanently."""
        return self.refusals.number

    def setup(self) -> None:
        """Look whether somebody listens.

        Raises:
            SinkUnavailableError: nobody does, now.
        """
        try:
            self._connect().close()
        except OSError as error:
            raise self._unavailable(error) from error

    def write(self, points: Sequence[Point]) -> None:
        """Send the points in order.

        Raises:
            SinkUnavailableError: Carbon is unavailable, or takes nothing; write what was not flushed again later.
        """
        try:
            for at in range(0, len(points), CHUNK):
                lines = "".join(line for point in points[at : at + CHUNK] for line in self._lines(point))
                if lines:
                    self._send(lines.encode())
        except OSError as error:
            raise self._unavailable(error) from error

    def flush(self) -> None:
        """Return when Carbon has read every line.

        Raises:
            SinkUnavailableError: it is not known whether it has; write what was not flushed again later.
        """
        if self._socket is None:
            return
        try:
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(4096):
                pass
        except OSError as error:
            raise self._unavailable(error) from error
        self._drop()
        self._lately.extend((self._clock(), chunk) for chunk in self._sent)
        self._sent = []
        self._failed = False
        self._forget()

    def close(self) -> None:
        """Flush and release the connection; safe to call again."""
        with suppress(SinkUnavailableError):  # nobody is left who could write it again
            self.flush()
        self._drop()

    def _send(self, chunk: bytes) -> None:
        if self._socket is None:
            self._socket = self._connect()
            if self._failed:
                for _, earlier in self._lately:
                    self._socket.sendall(earlier)
        self._socket.sendall(chunk)
        self._sent.append(chunk)

    def _connect(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=self._timeout_s)

    def _forget(self) -> None:
        size = sum(len(chunk) for _, chunk in self._lately)
        while self._lately and (size > REPEAT_BYTES or self._lately[0][0] < self._clock() - REPEAT_S):
            size -= len(self._lately.popleft()[1])

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _unavailable(self, error: OSError) -> SinkUnavailableError:
        self._drop()
        self._sent = []
        self._failed = True
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


def lines_of(point: Point, prefix: str = "") -> Iterator[str]:
    """Yield a line for every number of a point: path with tags, value, second. `prefix` is empty, or ends in a dot."""
    pairs = ((free(key, _NAME), value) for key, value in point.tags.items())
    # In the order that Graphite gives them: file names are made of the whole path.
    tags = "".join(sorted(f";{encode_value(key)}={encode_value(value)}" for key, value in pairs))
    for field, value in point.fields.items():
        if not isinstance(value, str):
            number = int(value) if isinstance(value, bool) else value
            path = f"{prefix}{encode_path(point.measurement)}.{encode_path(field).replace('.', '%2E')}"
            yield f"{path}{tags} {number!r} {point.ts_ms // 1000}\n"


def _bad(point: Point) -> list[object]:
    # Carbon takes the time -1 for now.
    late = [] if 0 <= point.ts_ms // 1000 <= _LATEST_S else [f"the time {point.ts_ms}"]
    return [*refused(point), *late]
