"""Read the page in a browser: tiles, tables and statuses."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

from support.wait import wait_until

SCREENSHOTS = Path(__file__).parents[2] / ".build" / "screenshots"
TIMEOUT_MS = 60_000
"""How long a test waits for the browser, in ms."""
OVERFLOWS = """[...document.querySelectorAll("body *")].filter(one => one.getBoundingClientRect().right > innerWidth + 1
    && !one.closest(".stCode, [data-testid=stMarkdownContainer] table, .sr-only, [role=radiogroup]"))
    .map(one => one.outerHTML.slice(0, 200))"""
"""The elements that reach beyond the right edge, other than code and Markdown tables, which scroll by themselves."""


def tile(page: Page, label: str) -> str:
    """Return the value of the tile whose label contains `label`."""
    found = page.get_by_test_id("stMetric").filter(has=page.get_by_test_id("stMetricLabel").filter(has_text=label))
    return found.get_by_test_id("stMetricValue").inner_text(timeout=TIMEOUT_MS).strip()


def until(page: Page, label: str, value: str) -> None:
    """Wait until the tile shows the value."""
    page.get_by_test_id("stMetric").filter(has_text=label).filter(
        has=page.get_by_test_id("stMetricValue").get_by_text(value, exact=True)
    ).wait_for(timeout=TIMEOUT_MS)


def cells(page: Page, key: str) -> list[list[str]]:
    """Return the texts of a table's cells, by row."""
    table = page.locator(f".st-key-{key} table")
    table.wait_for(state="attached", timeout=TIMEOUT_MS)
    # All cells are read in one step, since the page may refresh between two steps.
    texts: list[list[str]] = table.evaluate(
        "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return texts


def until_chart(page: Page, title: str) -> None:
    """Wait until the page has the chart's title."""
    page.get_by_role("heading", name=title, exact=True).wait_for(timeout=TIMEOUT_MS)


def until_row(page: Page, key: str, *row: str) -> None:
    """Wait until the table has a row that begins with these texts."""
    wait_until(
        lambda: list(row) in [texts[: len(row)] for texts in cells(page, key)], TIMEOUT_MS / 1000, f"{key} has {row[0]}"
    )


def until_sortable(page: Page, key: str) -> None:
    """Wait until a click on a column sorts the table: its script is loaded after the table is drawn."""
    page.locator(f".st-key-{key}-table th[aria-sort=none]").first.wait_for(state="attached", timeout=TIMEOUT_MS)


def statuses(page: Page) -> list[list[str]]:
    """Return group, status and lag of each row."""
    return [row[:3] for row in cells(page, "groups-table")[1:]]


def until_complete(page: Page) -> None:
    """Wait until the server has sent the whole view, all of it is drawn, and nothing of an earlier view is left."""
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for(timeout=TIMEOUT_MS)
    waiting = '[data-stale="true"], [data-testid="stSkeleton"]'
    page.wait_for_function(f"!document.querySelector('{waiting}')", timeout=TIMEOUT_MS)


def screenshot(page: Page, name: str) -> None:
    """Save a screenshot of the page without the empty space below it, as in docs/page*.png."""
    until_complete(page)
    page.get_by_test_id("stMainBlockContainer").screenshot(path=SCREENSHOTS / name)
