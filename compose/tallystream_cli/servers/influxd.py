"""A real InfluxDB 2.7 on loopback, without Docker: for the tests, and for who wants to try the store at home."""

from __future__ import annotations

import http.client
import json
import secrets
import signal
import socket
import ssl
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from tallystream.errors import TallystreamError
from tallystream_aggregator import files
from tallystream_cli.servers.influxd_build import BuildError, Found, find_or_build
from tallystream_cli.servers.process import Server, free_port, spawn, tail

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

__all__ = ["BuildError", "Found", "InfluxError", "InfluxServer", "find_or_build", "main"]

MAX_WAIT_S = 20.0
POLL_S = 0.05


class InfluxError(TallystreamError):
    """InfluxDB did not start, or refused its first set-up; the message ends with what it said last."""


class InfluxServer(Server):
    """One influxd; `port` 0 takes a free one and keeps it over restarts. `binary` None takes that of the cache.

    With `tls`, a certificate for 127.0.0.1 that is its own authority and its key (PEM files), it speaks TLS alone.

    At its first start in `data_dir` it is set up with `org`, `bucket` (unlimited retention) and a token of its own,
    which is kept in `data_dir` for its owner alone to read. Data and token survive a stop, a kill and another process.
    The server dies with the thread that started it.
    """

    org = "tallystream"
    bucket = "tallystream"

    def __init__(
        self, data_dir: Path, *, port: int = 0, binary: Path | None = None, tls: tuple[Path, Path] | None = None
    ) -> None:
        super().__init__(data_dir / "influxd.log", max_wait_s=MAX_WAIT_S)
        self._dir = data_dir
        self._tls = tls
        self._port = port
        self._binary = binary
        self._token = ""

    @property
    def url(self) -> str:
        """Where clients connect: http or https, 127.0.0.1 and the port."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def token(self) -> str:
        """The operator's token; empty before the first start."""
        return self._token

    def start(self, timeout: float = 60.0) -> Self:
        """Start and return when the server answers and is set up, `timeout` seconds at most.

        Raises:
            InfluxError: there is no influxd, its port is taken, it ended, did not answer in time, or its set-up failed.
            BuildError: influxd is not in the cache and its build failed.
        """
        if self.pid is None:
            files.make_folder(self._dir)
            self._port = self._port or free_port()
            self._require_free()
            self._token = self._kept_token()
            self._process = spawn(self._command(), self.log)
            try:
                self._wait(timeout)
                self._onboard()
            except BaseException:
                self.kill()
                raise
        return self

    def _require_free(self) -> None:
        # Whoever has the port would answer in our server's place.
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self._port))
            except OSError as error:
                raise InfluxError(f"influxd: port {self._port} can't be had: {error.strerror}.") from error

    def _command(self) -> list[str]:
        binary = self._binary
        if binary is None:
            found = find_or_build()
            if found.path is None:
                raise InfluxError(f"influxd: {found.reason}.")
            binary = found.path
        return [
            str(binary),
            f"--http-bind-address=127.0.0.1:{self._port}",
            f"--bolt-path={self._dir / 'influxd.bolt'}",
            f"--sqlite-path={self._dir / 'influxd.sqlite'}",
            f"--engine-path={self._dir / 'engine'}",
            "--reporting-disabled",
            *([f"--tls-cert={self._tls[0]}", f"--tls-key={self._tls[1]}"] if self._tls else []),
        ]

    def _kept_token(self) -> str:
        path = self._dir / "token"
        if not path.exists():
            files.write_file(path, secrets.token_urlsafe(48).encode())
        return path.read_text(encoding="ascii")

    def _wait(self, timeout: float) -> None:
        began, pause = time.monotonic(), threading.Event()
        while time.monotonic() - began < timeout:
            if self.pid is None:
                raise InfluxError(f"influxd: it ended while starting; {self.log} says:\n{tail(self.log)}")
            try:
                status, _ = self._request("GET", "/health")
            except (OSError, http.client.HTTPException):
                status = 0
            if status == http.HTTPStatus.OK:
                return
            pause.wait(POLL_S)
        raise InfluxError(f"influxd: no answer after {timeout:g} s; {self.log} says:\n{tail(self.log)}")

    def _onboard(self) -> None:
        # Onboarding is one request that makes user, organization, bucket and token, or, the second time, nothing.
        if not self._request("GET", "/api/v2/setup")[1].get("allowed"):
            return
        wanted = {
            "username": "tallystream",
            "password": secrets.token_urlsafe(24),  # nobody logs in: the token does everything
            "org": self.org,
            "bucket": self.bucket,
            "retentionPeriodSeconds": 0,
            "token": self._token,
        }
        status, answer = self._request("POST", "/api/v2/setup", wanted)
        if status != http.HTTPStatus.CREATED:
            raise InfluxError(f"influxd: its set-up failed ({status}): {answer.get('message', '')}")

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        if self._tls:
            trusted = ssl.create_default_context(cafile=str(self._tls[0]))
            connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=10, context=trusted)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith(b"{") else {}
        finally:
            connection.close()


def main() -> int:
    """Build influxd if it is not in the cache; the exit code is 2 when it can't be had."""
    signal.signal(signal.SIGTERM, _end)  # as an exception, so that the compilers end with us
    try:
        found = find_or_build()
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    sys.stderr.write(f"influxd: {found.path or found.reason}\n")
    return 0 if found.path else 2


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
