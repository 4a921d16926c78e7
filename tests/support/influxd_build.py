"""Build influxd from its Go module into the user's cache.

No package registry has a binary of InfluxDB 2.7, but its source is a Go module, with Flux in Rust.
docs/stores.md describes the build.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, NamedTuple

from tallystream.errors import TallystreamError
from tallystream_cli.servers.jars import cache_dir, sha256_of

VERSION = "2.7.12"
MODULE = "github.com/influxdata/influxdb/v2/cmd/influxd"
PKG_CONFIG_MODULE = "github.com/influxdata/pkg-config"
MIN_GO = (1, 23)
PROGRESS_INTERVAL_S = 30.0


class BuildError(TallystreamError):
    """The build of influxd failed; the message ends with the compiler's last output."""


class Found(NamedTuple):
    """The path of influxd, or None and the reason why there is none."""

    path: Path | None
    reason: str


def cached_path() -> Path:
    """Return the path of the binary in the cache, whether or not it exists."""
    return cache_dir() / "influxd" / f"influxd-{VERSION}"


def missing_tools() -> list[str]:
    """Return the tools that a build needs and this machine does not have, with the required version."""
    missing = []
    go = _go_version()
    if go is None or go < MIN_GO:
        missing.append(f"Go >= {MIN_GO[0]}.{MIN_GO[1]}")
    if shutil.which("cargo") is None:
        missing.append("Rust (cargo)")
    if shutil.which("gcc") is None and shutil.which("clang") is None:
        missing.append("a C compiler")
    if shutil.which("pkg-config") is None:
        missing.append("pkg-config")
    return missing


def find_or_build() -> Found:
    """Return influxd from the cache. If it is missing or was changed, build it, which takes minutes.

    If several processes call this at once, a file lock makes one of them build and the others wait.

    Raises:
        BuildError: the build failed.
    """
    target = cached_path()
    if is_intact(target):
        return Found(target, "")
    if missing := missing_tools():
        why = f"{target} was changed after it was built" if target.exists() else "there is no InfluxDB"
        return Found(None, f"{why}, and to build one, {', '.join(missing)} is missing: install it or set INFLUXDB_URL")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        _lock(lock)
        if not is_intact(target):
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as work:
                binary = _build(Path(work))
                _digest_path(target).unlink(missing_ok=True)
                binary.replace(target)
                record_digest(target)
    return Found(target, "")


def _digest_path(target: Path) -> Path:
    return target.with_name(target.name + ".sha256")


def record_digest(target: Path) -> None:
    """Record the digest of a binary that was built."""
    new = _digest_path(target).with_suffix(".new")
    new.write_text(f"{sha256_of(target)}\n", encoding="ascii")
    new.replace(_digest_path(target))


def is_intact(target: Path) -> bool:
    """Return whether the binary exists and has the recorded digest. Record the digest if none is recorded."""
    if not target.exists():
        return False
    if not _digest_path(target).exists():
        try:
            record_digest(target)
        except OSError:  # this user can't write the cache
            return True
    return _digest_path(target).read_text(encoding="ascii", errors="replace").strip() == sha256_of(target)


def _lock(lock: IO[str]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("another process is building InfluxDB: waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _build(work: Path) -> Path:
    started_at = time.monotonic()
    _say(f"building InfluxDB {VERSION} from source, once; this takes minutes")
    # In a new module, because `go install pkg@version` rejects the replace directive in InfluxDB's go.mod.
    wrapper = work / "wrapper"
    wrapper.mkdir()
    pkg_config, binary, quiet = work / "pkg-config", work / "influxd", work / "rustc-quiet"
    # Flux denies warnings, and newer versions of Rust have new ones.
    quiet.write_text('#!/bin/sh\nexec "$@" --cap-lints warn\n', encoding="utf-8")
    quiet.chmod(0o700)
    env = {
        **os.environ,
        "PKG_CONFIG": str(pkg_config),
        "RUSTC_WORKSPACE_WRAPPER": str(quiet),
        "GOFLAGS": "-mod=mod",
        "GOWORK": "off",
    }
    if toolchain := _rust_toolchain():
        env["RUSTUP_TOOLCHAIN"] = toolchain  # Flux pins an old version
    flags = f"-s -w -X main.version=v{VERSION} -X main.commit=v{VERSION}"
    steps = [
        ("preparing", ["go", "mod", "init", "tallystream.invalid/influxd"]),
        ("fetching its modules", ["go", "get", f"{MODULE}@v{VERSION}"]),
        ("building its pkg-config", ["go", "build", "-o", str(pkg_config), PKG_CONFIG_MODULE]),
        ("compiling", ["go", "build", "-ldflags", flags, "-o", str(binary), MODULE]),
    ]
    for label, command in steps:
        _run(label, command, wrapper, env, work / "log")
    _say(f"built in {time.monotonic() - started_at:.0f} s")
    return binary


def _run(label: str, command: list[str], cwd: Path, env: dict[str, str], log: Path) -> None:
    started_at = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(timeout=PROGRESS_INTERVAL_S)
                    break
                _say(f"{label}, {time.monotonic() - started_at:.0f} s so far")
        except BaseException:
            # Compilers are children of the command, so the process group is stopped.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 15)
            process.wait()
            raise
    if code != 0:
        tail = log.read_text(encoding="utf-8", errors="replace").strip()[-2000:]
        raise BuildError(f"influxd: {label} failed (exit code {code}): {tail}")


def _go_version() -> tuple[int, int] | None:
    if shutil.which("go") is None:
        return None
    output = subprocess.run(["go", "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", output)
    return (int(found.group(1)), int(found.group(2))) if found else None


def _rust_toolchain() -> str | None:
    if shutil.which("rustup") is None:
        return None
    output = subprocess.run(["rustup", "show", "active-toolchain"], capture_output=True, text=True, check=False).stdout
    return output.split()[0] if output.split() else None


def _say(sentence: str) -> None:
    sys.stderr.write(f"influxd: {sentence}\n")
    sys.stderr.flush()
