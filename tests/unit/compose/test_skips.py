"""The summary of skipped tests, in real runs of pytest on a small suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_in_ci_a_skip_is_a_failure(tmp_path: Path) -> None:
    """In CI a run with a skipped test fails with a message; without one it passes."""
    done = run(tmp_path, skip=True, CI="true")
    assert done.returncode == 1
    assert "in CI a skipped test is a failure" in done.stdout
    done = run(tmp_path, skip=False, CI="true")
    assert done.returncode == 0
    assert "no test was skipped" in done.stdout
