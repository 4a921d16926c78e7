"""The benchmark of a report: benchmarks/reporter."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

REPORTER = Path(__file__).parents[3] / "benchmarks/reporter"


def test_the_steps_of_a_report_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pieces` measures steps inside metrics: they are there, with these names."""
    monkeypatch.syspath_prepend(str(REPORTER))
    pieces = importlib.import_module("pieces")
    monkeypatch.setattr(pieces, "PAST", 1)
    assert list(pieces.microseconds(rounds=1)) == [
        "a counter: read",
        "a counter: encode as JSON",
        "a histogram: add 15 values",
        "a histogram: encode the sketch as a record struct",
        "a histogram: encode the record as JSON",
        "a sample of a local reporter: add 15 values",
        "a sample of a local reporter: compute the view",
    ]
