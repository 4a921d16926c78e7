"""What the page links to: Grafana and the runbook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.grafana.generate import alert_rules
from tallystream_dashboards.page import PageSettings
from tallystream_dashboards.page.url_state import Selection, grafana_link
from tallystream_dashboards.page.views import runbook

STORE = StoreSettings.parse("local:x.db")
GRAFANA = PageSettings(store=STORE, grafana_url="https://g.example/sub/", grafana_uid_prefix="prod")
NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("selection", "link"),
    [
        (Selection(view="groups"), "prod-lag?from=now-15m&to=now"),
        (Selection(view="groups", group="a b&c"), "prod-lag?var-group=a+b%26c&from=now-15m&to=now"),
        (Selection(view="groups", range="7d"), "prod-lag?from=now-7d&to=now"),
        (
            Selection(view="metrics", app="a", metric="m", at="2023-11-14T22:13:20"),
            f"prod-metric?var-app=a&var-metric=m&from={NOW - 900_000}&to={NOW}",
        ),
        (Selection(view="compare", app="a", metric="m"), "prod-metric?var-app=a&var-metric=m&from=now-15m&to=now"),
    ],
)
def test_grafana_shows_the_same_at_the_same_time(selection: Selection, link: str) -> None:
    """The link names the dashboard, its variables and the period."""
    assert grafana_link(GRAFANA, selection) == f"https://g.example/sub/d/{link}"


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "grafana.example", "http://[::1", "http://g:x", "file:///etc/passwd"]
)
def test_only_web_addresses_are_linked(url: str) -> None:
    """An address that is not of the web is refused when the page starts."""
    with pytest.raises(ConfigError, match="--grafana-url"):
        PageSettings(store=STORE, grafana_url=url)


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
