"""docs/guarantee-tests.md: every guarantee names a test, and every named test exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "guarantee-tests.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", DOC)))
ROWS = [line for line in DOC.splitlines() if line.startswith("| ") and not line.startswith("| guarantee")]


def test_every_guarantee_names_its_test() -> None:
    """Each row names its tests, or refers to those of the row above."""
    assert ROWS
    assert all("::" in row or row.endswith("| the same |") for row in ROWS)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_every_named_test_exists(file: str, test: str) -> None:
    """The file has a test of that name."""
    assert f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")
