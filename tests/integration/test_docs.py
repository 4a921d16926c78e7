"""The documentation site builds offline without a warning, and its API reference has all public names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tallystream
from tallystream import testing

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]

DOCS = Path(__file__).parents[2] / "docs"


def build(source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does, in another folder. PySpark can't be imported: the site needs no Spark."""
    blocked = folder / "blocked" / "pyspark"
    blocked.mkdir(parents=True, exist_ok=True)
    (blocked / "__init__.py").write_text("raise ImportError('the site needs no Spark')\n")
    path = os.pathsep.join([str(blocked.parent), os.environ.get("PYTHONPATH", "")])
    strict = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "cache")]
    command = [sys.executable, "-m", "sphinx", *strict, str(source), str(folder / "site")]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """It has every page, and the API reference has every public name with its inherited methods."""
    done = build(DOCS, tmp_path)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    site = tmp_path / "site"
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    reference = (site / "api" / "reporter.html").read_text(encoding="utf-8")
    described = set(re.findall(r'id="(tallystream\.[\w.]+)"', reference))
    public = {f"tallystream.{name}" for name in tallystream.__all__}
    public |= {f"tallystream.testing.{name}" for name in testing.__all__}
    public |= {"tallystream.MetricRegistry.counter", "tallystream.KafkaReporter.report_now"}
    assert public <= described
