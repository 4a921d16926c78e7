"""Where influxd comes from: the cache, else a build, else a sentence that says what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
