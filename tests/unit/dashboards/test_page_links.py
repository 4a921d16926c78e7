"""What the page links to: the runbook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tallystream_dashboards.grafana.generate import alert_rules
from tallystream_dashboards.page.views import runbook


def test_the_page_has_the_runbook() -> None:
    """The page's copy is that of the docs, it has a section for every rule, and no link leads to a page of the docs."""
    docs = Path(__file__).parents[3] / "docs" / "runbook.md"
    assert runbook.TEXT.read_bytes() == docs.read_bytes(), f"run: cp docs/runbook.md {runbook.TEXT}"
    sections = runbook.sections()
    assert alert_rules().keys() <= set(sections)
    links = [link for text in sections.values() for link in re.findall(r"\]\(([^)]+)\)", text)]
    assert links
    assert [link for link in links if not re.fullmatch(r"\?view=runbook&section=[\w-]+", link)] == []
    assert {link.partition("section=")[2] for link in links} <= set(sections)


@pytest.mark.parametrize("slug", alert_rules())
def test_what_to_do_needs_no_grafana(slug: str) -> None:
    """The page and `tallystream alert` say it to people who have none."""
    assert "dashboard" not in alert_rules()[slug].action.lower()
