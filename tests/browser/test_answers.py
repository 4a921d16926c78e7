"""The page's first answer, its password, its labels for screen readers, and a phone's width."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
import requests

from support.browser import TIMEOUT_MS, until_chart, until_complete
from support.history import counter_point
from support.lag import Rounds, group, round_of
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

PHONE = {"width": 390, "height": 844}
OVERFLOWS = """[...document.querySelectorAll("body *")].filter(one => one.getBoundingClientRect().right > innerWidth + 1
    && !one.closest(".stCode, [data-testid=stMarkdownContainer] table, .text-table thead, .sr-only, [role=radiogroup]"))
    .map(one => one.outerHTML.slice(0, 200))"""
"""The elements that reach beyond the right edge, other than code and Markdown tables, which scroll by themselves."""


def address(page_of_the_past: tuple[str, int], **selected: str) -> str:
    """Return the URL of a view at the end of ten minutes of history."""
    url, last_ms = page_of_the_past
    at = datetime.fromtimestamp(last_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{url}/?{urlencode({**selected, 'at': at})}"


def drawn(page: Page) -> None:
    """Wait until the view is complete."""
    page.get_by_role("region", name="State of the system").wait_for(timeout=TIMEOUT_MS)
    until_complete(page)


def test_what_is_not_well_comes_first(page_of_the_past: tuple[str, int], open_page: Callable) -> None:
    """Every view begins with the problems, worst first, each with its time, reason, runbook and details."""
    with open_page(address(page_of_the_past, view="metrics")) as page:
        state = page.get_by_role("region", name="State of the system")
        state.get_by_role("heading", name="2 problems: 1 critical, 1 warning").wait_for(timeout=TIMEOUT_MS)
        worst, other = state.get_by_role("listitem").all_inner_texts()
        assert worst.startswith("CRITICALGroup audit is ERR since ")
        assert "the group has no members" in worst
        assert "What to do: Run tallystream lag" in worst
        assert "Group billing is WARN since " in other
        with page.context.expect_page() as opened:
            state.get_by_role("link", name="Runbook: lag-status").click()
        opened.value.get_by_text("start the consumers. If they end again").wait_for(timeout=TIMEOUT_MS)
        opened.value.get_by_role("heading", name="lag-status").wait_for(timeout=TIMEOUT_MS)
        state.get_by_role("link", name="Details").first.click()
        until_chart(page, "Lag by partition, records")
        assert "group=audit" in page.url
        assert "at=" in page.url


def test_a_screen_reader_finds_everything_by_its_name(page_of_the_past: tuple[str, int], open_page: Callable) -> None:
    """Widgets, charts, tables and their cells have roles and names, also on a phone, where rows are drawn as blocks."""
    with open_page(address(page_of_the_past, view="groups"), viewport=PHONE) as page:
        drawn(page)
        for name in ("Period", "View"):
            page.get_by_role("radiogroup", name=name).wait_for(timeout=TIMEOUT_MS)
        page.get_by_role("combobox", name="Consumer group").wait_for(timeout=TIMEOUT_MS)
        table = page.get_by_role("table", name="Consumer groups")
        assert table.get_by_role("rowheader").all_inner_texts()[:2] == ["audit", "billing"]
        assert table.get_by_role("row").nth(1).get_by_role("cell").nth(1).inner_text() == "2,360"
        chart = page.locator('[data-testid="stVegaLiteChart"]')
        chart.locator("svg").wait_for(timeout=TIMEOUT_MS)
        assert chart.get_attribute("aria-label") == (
            "Chart: Lag by group, records. Its values are in the text that follows."
        )
        text = page.locator(".sr-only").first.text_content() or ""
        assert "audit: 2,360, from 0 to 2,360" in text


def test_a_phone_shows_every_view_without_scrolling_sideways(
    page_of_the_past: tuple[str, int], open_page: Callable
) -> None:
    """At 390 px nothing reaches beyond the right edge. The answer is on the first screen."""
    views = {
        "groups": {},
        "group": {"group": "audit"},
        "metrics": {"view": "metrics", "app": "orders"},
        "twice": {"view": "twice", "app": "orders"},
        "runbook": {"view": "runbook", "section": "lag-status"},
    }
    with open_page(address(page_of_the_past), viewport=PHONE) as page:
        for name, selected in views.items():
            page.goto(address(page_of_the_past, **selected))
            drawn(page)
            if name != "runbook":
                page.locator('[data-testid="stVegaLiteChart"] svg').first.wait_for(timeout=TIMEOUT_MS)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            assert page.evaluate(OVERFLOWS) == [], name
            heading = page.get_by_role("heading", name="2 problems").bounding_box()
            assert heading is not None
            assert heading["y"] < PHONE["height"] / 2, name


def test_names_behind_the_password(
    tmp_path: Path, serve: Callable, open_page: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is well after the login, values are exact, and a link leads to Grafana."""
    monkeypatch.setenv("TALLYSTREAM_PAGE_PASSWORD", "open sesame")
    monkeypatch.setenv("GRAFANA_URL", "https://grafana.example.org")
    spec = f"local:{tmp_path / 'store.db'}"
    sink, rounds = open_sink(StoreSettings.parse(spec)), Rounds()
    sink.setup()
    now_ms = round(datetime.now(UTC).timestamp() * 1000)
    for ago in (20, 10, 0):
        named = group("=cmd|' /C calc'!A0", (2**53 + 1 - ago, 2**53 + 1 - ago))
        sink.write(rounds.points(round_of(named), now_ms - ago * 1000))
    sink.write([counter_point(2**53 + 1, now_ms, app="@app")])
    sink.close()
    with serve(spec) as url, open_page(f"{url}/?group=%3Dcmd%7C%27%20%2FC%20calc%27%21A0") as page:
        assert requests.get(f"{url}/_stcore/host-config", timeout=TIMEOUT_MS / 1000).status_code == 401
        page.get_by_label("Password", exact=True).fill("open sesame")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Everything is well.").wait_for(timeout=TIMEOUT_MS)
        link = page.get_by_role("link", name="Open in Grafana").get_attribute("href")
        assert link == (
            "https://grafana.example.org/d/tallystream-lag?var-group=%3Dcmd%7C%27+%2FC+calc%27%21A0&from=now-15m&to=now"
        )
        page.goto(f"{url}/?view=metrics")
        page.get_by_role("cell", name=f"{2**53 + 1:,}").wait_for(timeout=TIMEOUT_MS)
