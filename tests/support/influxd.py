"""A real InfluxDB 2.7 on loopback, without Docker, built from its Go module, which has Flux in Rust.

`PYTHONPATH=tests python -m support.influxd` builds it, if it is not in the cache. docs/stores.md describes the build.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from support import built
from support.built import Program
from tallystream.errors import TallystreamError
from tallystream_aggregator import files
from tallystream_cli.servers.jars import cache_dir
from tallystream_cli.servers.process import Server, StartError, free_port

VERSION = "2.7.12"
MODULE = "github.com/influxdata/influxdb/v2/cmd/influxd"
PKG_CONFIG_MODULE = "github.com/influxdata/pkg-config"
TOOLS = (("go",), ("cargo",), ("gcc", "clang"), ("pkg-config",))


def cached_path() -> Path:
    """Return the path of the binary in the cache, whether or not it exists."""
    return cache_dir() / "influxd" / f"influxd-{VERSION}"


def find_or_build() -> Path:
    """Return influxd from the cache, or build it. See `built.find_or_build`."""
    return built.find_or_build(Program("InfluxDB", cached_path(), TOOLS, _build))


def _build(work: Path) -> Path:
    # In a new module, because `go install pkg@version` rejects the replace directive in InfluxDB's go.mod.
    wrapper = work / "wrapper"
    wrapper.mkdir()
    pkg_config, binary, quiet = work / "pkg-config", work / "influxd", work / "rustc-quiet"
    # Flux denies warnings, and newer versions of Rust have new ones.
    quiet.write_text('#!/bin/sh\nexec "$@" --cap-lints warn\n', encoding="utf-8")
    quiet.chmod(0o700)
    own = {"PKG_CONFIG": str(pkg_config), "RUSTC_WORKSPACE_WRAPPER": str(quiet), "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    if toolchain := _rust_toolchain():
        own["RUSTUP_TOOLCHAIN"] = toolchain  # Flux pins an old version
    flags = f"-s -w -X main.version=v{VERSION} -X main.commit=v{VERSION}"
    for command in (
        ["go", "mod", "init", "tallystream.invalid/influxd"],
        ["go", "get", f"{MODULE}@v{VERSION}"],
        ["go", "build", "-o", str(pkg_config), PKG_CONFIG_MODULE],
        ["go", "build", "-ldflags", flags, "-o", str(binary), MODULE],
    ):
        built.compile_with(command, wrapper, {**os.environ, **own})
    return binary


def _rust_toolchain() -> str | None:
    if shutil.which("rustup") is None:
        return None
    output = subprocess.run(["rustup", "show", "active-toolchain"], capture_output=True, text=True, check=False).stdout
    return output.split()[0] if output.split() else None


class InfluxServer(Server):
    """A server that is killed when the thread that started it ends. Its data and its token stay in `data_dir`.

    A restart keeps its port.

    The first start in `data_dir` sets it up with `org`, `bucket` (unlimited retention) and a token, which is kept in a
    file that only its owner can read.

    Args:
        data_dir: holds data, token and log.
        binary: None for the binary in the cache, which is built if it is missing.
    """

    org = "tallystream"
    bucket = "tallystream"

    def __init__(self, data_dir: Path, *, binary: Path | None = None) -> None:
        super().__init__("influxd", data_dir / "influxd.log")
        self._dir = data_dir
        self._port = free_port()
        self._binary = binary
        self._token = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def token(self) -> str:
        """The operator's token; empty before the first start."""
        return self._token

    def begin(self) -> None:
        """Start the process and return at once.

        Raises:
            TallystreamError: influxd is not in the cache, and can't be built.
        """
        files.make_folder(self._dir)
        self._token = self._read_or_create_token()
        self._spawn(self._command())

    def ready(self) -> bool:
        """Return whether the server answers. Then it is set up, at the first time."""
        try:
            status, _ = self._request("GET", "/health")
        except (OSError, http.client.HTTPException):
            return False
        if status == http.HTTPStatus.OK:
            self._set_up()
        return status == http.HTTPStatus.OK

    def _command(self) -> list[str]:
        return [
            str(self._binary or find_or_build()),
            f"--http-bind-address=127.0.0.1:{self._port}",
            f"--bolt-path={self._dir / 'influxd.bolt'}",
            f"--sqlite-path={self._dir / 'influxd.sqlite'}",
            f"--engine-path={self._dir / 'engine'}",
            "--reporting-disabled",
        ]

    def _read_or_create_token(self) -> str:
        path = self._dir / "token"
        if not path.exists():
            files.write_file(path, secrets.token_urlsafe(48).encode())
        return path.read_text(encoding="ascii")

    def _set_up(self) -> None:
        # One request creates user, organization, bucket and token. InfluxDB allows it once.
        if not self._request("GET", "/api/v2/setup")[1].get("allowed"):
            return
        request = {
            "username": "tallystream",
            "password": secrets.token_urlsafe(24),  # not used: the token has all permissions
            "org": self.org,
            "bucket": self.bucket,
            "retentionPeriodSeconds": 0,
            "token": self._token,
        }
        status, response = self._request("POST", "/api/v2/setup", request)
        if status != http.HTTPStatus.CREATED:
            raise StartError(f"influxd: its set-up failed ({status}): {response.get('message', '')}")

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        with closing(connection):
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text.startswith(b"{") else {}


if __name__ == "__main__":
    try:
        find_or_build()
    except TallystreamError as error:
        sys.exit(str(error))
