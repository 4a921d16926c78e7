"""The summary of skipped tests, in real runs of pytest on a small suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import skips

TESTS = Path(__file__).parents[2]
SUITE = """
import pytest

def test_good():
    pass

@pytest.mark.skipif({skip}, reason="no server: install it, or set SERVER_URL")
def test_server():
    pass
"""


def run(tmp_path: Path, *, skip: bool, **env: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on the small suite with this suite's hooks."""
    (tmp_path / "conftest.py").write_text("from support.skips import pytest_sessionfinish, pytest_terminal_summary\n")
    (tmp_path / "test_small.py").write_text(SUITE.format(skip=skip))
    clean = {key: value for key, value in os.environ.items() if key not in {"CI", "TALLYSTREAM_NOTHING_SKIPPED"}}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        env={**clean, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_summary_names_each_skipped_test_and_the_reason(tmp_path: Path) -> None:
    """Outside of CI a run with a skipped test passes, and its last lines name the test and the reason."""
    done = run(tmp_path, skip=True)
    assert done.returncode == 0
    block = done.stdout.partition("skipped tests")[2]
    assert "no server: install it, or set SERVER_URL:\n  test_small.py::test_server\n" in block
    assert "failed" not in block


def test_in_ci_a_skip_is_a_failure(tmp_path: Path) -> None:
    """In CI a run with a skipped test fails with a message; without one it passes."""
    done = run(tmp_path, skip=True, CI="true")
    assert done.returncode == 1
    assert "in CI a skipped test is a failure" in done.stdout
    done = run(tmp_path, skip=False, CI="true")
    assert done.returncode == 0
    assert "no test was skipped" in done.stdout


@pytest.mark.parametrize(
    ("env", "expected"),
    [({}, False), ({"CI": ""}, False), ({"CI": "1"}, True), ({"TALLYSTREAM_NOTHING_SKIPPED": "1"}, True)],
)
def test_what_counts_as_ci(env: dict[str, str], expected: bool) -> None:
    """A run is in CI if either variable is not empty."""
    assert skips.skips_are_failures(env) is expected
