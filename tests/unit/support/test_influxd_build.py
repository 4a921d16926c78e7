"""Where influxd comes from: the cache, else a build, else a sentence that says what is missing."""

from __future__ import annotations

import fcntl
import threading
from typing import TYPE_CHECKING

import pytest

from support import influxd_build
from support.influxd_build import BuildError, cached_path, find_or_build

if TYPE_CHECKING:
    from pathlib import Path

GO = "#!/bin/sh\ncase $1 in version) echo go version {version} linux/amd64;; *) {does} ;; esac\n"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and the only folder in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("TALLYSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(folder))
    return folder


def _tool(folder: Path, name: str, script: str = "#!/bin/sh\n") -> None:
    (folder / name).write_text(script)
    (folder / name).chmod(0o700)


def _all_tools(folder: Path, does: str) -> None:
    for name in ("cargo", "gcc", "pkg-config"):
        _tool(folder, name)
    _tool(folder, "go", GO.format(version="go1.26.8", does=does))


def test_a_cached_binary_needs_no_tools(tools: Path) -> None:
    """A binary in the cache is used, whatever tools the machine has."""
    cached_path().parent.mkdir(parents=True)
    cached_path().touch()
    assert find_or_build() == (cached_path(), "")


def test_what_is_missing_is_one_sentence(tools: Path) -> None:
    """Each missing tool is named, with its version where that matters, and the other way out."""
    _tool(tools, "gcc")
    path, reason = find_or_build()
    assert path is None
    assert reason == (
        "there is no InfluxDB, and to build one, Go >= 1.23, Rust (cargo), pkg-config is missing: "
        "install it or set INFLUXDB_URL"
    )


def test_too_old_a_go_is_missing(tools: Path) -> None:
    """A Go below the version that InfluxDB needs is as good as none; versions are compared as numbers."""
    _all_tools(tools, "exit 1")
    assert influxd_build.missing_tools() == []
    _tool(tools, "go", GO.format(version="go1.9.7", does="exit 1"))
    assert influxd_build.missing_tools() == ["Go >= 1.23"]


def test_a_failed_build_says_what_the_compiler_said(tools: Path) -> None:
    """The error holds the step and the last words; nothing half-made is left in the cache."""
    _all_tools(tools, "echo linker not found >&2; exit 3")
    with pytest.raises(BuildError, match=r"preparing failed \(exit code 3\): linker not found"):
        find_or_build()
    assert [path.name for path in cached_path().parent.iterdir()] == [".lock"]


def test_a_cached_binary_that_was_changed_is_built_again(tools: Path) -> None:
    """Its SHA-256 is recorded when it is built, and compared at every use."""
    builds = tools.parent / "builds"
    build = f'echo built >>{builds}; for last; do case $before in -o) echo genuine >"$last";; esac; before=$last; done'
    _all_tools(tools, build)
    path = find_or_build().path
    assert path is not None
    built = builds.read_text().count("built")
    assert find_or_build() == (path, "")
    assert builds.read_text().count("built") == built
    path.write_text("forgery")
    assert find_or_build() == (path, "")
    assert path.read_text() == "genuine\n"
    assert builds.read_text().count("built") == 2 * built


def test_a_cached_binary_that_was_changed_is_not_used(tools: Path) -> None:
    """Where it can't be built again, the sentence says what happened to it."""
    cached_path().parent.mkdir(parents=True)
    cached_path().write_text("genuine")
    assert find_or_build() == (cached_path(), "")  # of a release that recorded nothing: recorded now
    cached_path().write_text("forgery")
    path, reason = find_or_build()
    assert path is None
    assert reason.startswith(f"{cached_path()} was changed after it was built, and to build one, Go >= 1.23, ")


def test_two_runs_do_not_build_at_once(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who finds the lock held waits, says so, and takes what the other one built."""
    _all_tools(tools, "exit 1")
    cached_path().parent.mkdir(parents=True)
    found: list[object] = []
    with (cached_path().parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiter = threading.Thread(target=lambda: found.append(find_or_build()))
        said = threading.Event()
        original = influxd_build._say
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(influxd_build, "_say", lambda what: (original(what), said.set()))
            waiter.start()
            assert said.wait(10)
            cached_path().touch()
    waiter.join(10)
    assert found == [(cached_path(), "")]
    assert "waiting for it" in capsys.readouterr().err
