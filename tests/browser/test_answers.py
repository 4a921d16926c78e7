"""The page's first answer, its labels for screen readers, and a phone's width."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from support.browser import TIMEOUT_MS, until_chart, until_complete, until_sortable
from support.wait import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

PHONE = {"width": 390, "height": 844}
LINE = 23
"""The height of a line of a table, in px."""


def drawn(page: Page) -> None:
    """Wait until the view is complete."""
    page.get_by_role("region", name="State of the system").wait_for(timeout=TIMEOUT_MS)
    until_complete(page)


def test_what_is_not_well_comes_first(past: Callable, open_page: Callable) -> None:
    """Every view begins with the problems, worst first, each with its time, reason, runbook and details."""
    with open_page(past(view="metrics")) as page:
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


def test_a_screen_reader_finds_everything_by_its_name(past: Callable, open_page: Callable) -> None:
    """Widgets, charts, tables and their cells have roles and names, also on a phone, where rows are drawn as blocks.

    The answer is on the first screen.
    """
    with open_page(past(view="groups"), viewport=PHONE) as page:
        drawn(page)
        heading = page.get_by_role("heading", name="2 problems").bounding_box()
        assert heading is not None
        assert heading["y"] < PHONE["height"] / 2
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


def test_a_phone_sorts_and_has_a_line_for_each_group_that_is_ok(past: Callable, open_page: Callable) -> None:
    """All that is known is shown of the other groups. The names of the columns are above the rows."""
    with open_page(past(view="groups"), viewport=PHONE) as page:
        drawn(page)
        names = page.get_by_role("table", name="Consumer groups").get_by_role("rowheader")
        assert names.all_inner_texts()[:2] == ["audit", "billing"]
        until_sortable(page, "groups")
        page.get_by_role("columnheader", name="Lag", exact=True).get_by_role("button").click(timeout=TIMEOUT_MS)
        wait_until(lambda: names.all_inner_texts()[:2] == ["billing", "audit"], 20, "the largest lag is first")
        rows = page.get_by_role("row")
        for name, lines, why in (("tallystream-aggregator", range(1, 3), False), ("audit", range(5, 20), True)):
            row = rows.filter(has=page.get_by_role("rowheader", name=name))
            box = row.bounding_box()
            assert box is not None
            assert round(box["height"] / LINE) in lines, box
            assert row.get_by_text("orders/0").or_(row.get_by_text("The lag is")).is_visible() is why
