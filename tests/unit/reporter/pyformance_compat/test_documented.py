"""The list of differences in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent


def test_the_documentation_names_every_test_of_a_difference() -> None:
    """Each row's test exists, and each tested difference has a row."""
    document = (HERE.parents[3] / "docs" / "pyformance-differences.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", document))
    tests = {
        path.name: set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        for path in HERE.glob("test_*.py")
    }
    assert len(re.findall(r"`test_\w+`", document)) > 25
    assert named - set().union(*tests.values()) == set()
    ours_alone = {
        "test_a_metric_is_created_once",
        "test_create_sink_may_request_metrics",
        "test_an_empty_registry_is_not_sent",
        "test_stopping_from_within_a_report",
        "test_tags",
    }
    assert (tests["test_deviations.py"] | tests["test_reporter_deviations.py"]) - named == ours_alone
