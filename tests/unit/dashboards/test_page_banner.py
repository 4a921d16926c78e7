"""The banner: one sentence, the problems with their links, and names as text."""

from __future__ import annotations

from collections.abc import Sequence
from html import unescape

import pytest

from tallystream_dashboards.data.problems import Problem
from tallystream_dashboards.page.banner import MAX_PROBLEMS, banner, headline
from tallystream_dashboards.page.url_state import Selection

NOW = 1_700_000_000_000
CRITICAL = Problem("Group a is ERR", "Why.", "lag-status", NOW - 60_000, "critical", {"view": "groups", "group": "a&b"})
WARNING = Problem("Group b is WARN", "Why.", "lag-seconds")


def drawn(found: Sequence[Problem], *, lag_known: bool = True) -> str:
    return banner(found, Selection(range="1h"), str, lag_known=lag_known, now_ms=NOW)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([], "Everything is well."),
        ([WARNING], "1 warning"),
        ([CRITICAL], "1 critical problem"),
        ([CRITICAL, WARNING, WARNING], "3 problems: 1 critical, 2 warnings"),
        ([WARNING, WARNING], "2 problems: 2 warnings"),
    ],
)
def test_the_first_sentence_is_the_answer(found: list[Problem], sentence: str) -> None:
    """The headline says whether everything is well, or how much is not."""
    assert headline(found, lag_known=True, past=False) == sentence
    assert f'<div role="status"><h2>{sentence}</h2></div>' in drawn(found)


def test_without_lag_nothing_is_said_to_be_well() -> None:
    """If no lag was ever collected, the page does not know. A time in the past was well."""
    assert "not known" in headline([], lag_known=False, past=False)
    assert "banner unknown" in drawn([], lag_known=False)
    assert headline([], lag_known=True, past=True) == "Everything was well."


def test_a_problem_has_its_time_and_links() -> None:
    """There are the time, the reason, what to do, the runbook's section, and the details in the same period."""
    html = unescape(drawn([CRITICAL]))
    assert f"<strong>Group a is ERR</strong> since {NOW - 60_000} (1 min)</p><p>Why. <a" in html
    assert "What to do: Run tallystream lag" in html
    assert 'href="?view=runbook&section=lag-status"' in html
    assert 'href="?view=groups&group=a%26b&range=1h"' in html


def test_many_problems_are_behind_a_button() -> None:
    """Of a kind three are shown at once. The others can be opened, up to a maximum. What to do is there once."""
    html = drawn([CRITICAL] * 59 + [WARNING])
    assert html.partition("<details>")[0].count("<strong>") == 3
    assert f"<summary>{MAX_PROBLEMS - 3} more</summary>" in html
    assert html.count("<strong>") == MAX_PROBLEMS
    assert html.count("What to do") == 1
    assert drawn([CRITICAL, WARNING, CRITICAL]).count("What to do") == 2
