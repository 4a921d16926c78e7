"""The list of differences in the documentation names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent


def test_every_test_that_is_named_exists() -> None:
    """Each row's test is in this folder, and each difference that is tested has a row."""
    document = (HERE.parents[3] / "docs" / "pyformance.md").read_text(encoding="utf-8")
    rows = document.partition("## What is different")[2]
    named = set(re.findall(r"`(test_\w+)`", document))
    tests = {
        path.name: set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        for path in HERE.glob("test_*.py")
    }
    assert len(re.findall(r"`test_\w+`", rows)) > 25
    assert named - set().union(*tests.values()) == set()
    ours_alone = {
        "test_no_thread_can_make_the_metric_that_another_is_making",
        "test_a_sink_may_ask_the_registry_for_metrics",
        "test_nothing_is_sent_where_there_is_nothing",
        "test_stopping_from_within_a_report",
        "test_tags",
    }
    assert (tests["test_deviations.py"] | tests["test_reporter_deviations.py"]) - named == ours_alone
