"""Read the page as a person does: tiles, tables and statuses, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support.wait import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHOTS = Path(__file__).parents[2] / ".build" / "screenshots"
LIMIT_MS = 60_000
"""How long the browser may take: a limit and no expectation."""


def tile(page: Page, label: str) -> str:
    """Return the number in the tile whose label begins so."""
    found = page.get_by_test_id("stMetric").filter(has=page.get_by_test_id("stMetricLabel").filter(has_text=label))
    return found.get_by_test_id("stMetricValue").inner_text(timeout=LIMIT_MS).strip()


def until(page: Page, label: str, value: str) -> None:
    """Wait until the tile shows the value, without touching the page."""
    page.get_by_test_id("stMetric").filter(has_text=label).filter(
        has=page.get_by_test_id("stMetricValue").get_by_text(value, exact=True)
    ).wait_for(timeout=LIMIT_MS)


def cells(page: Page, key: str) -> list[list[str]]:
    """Return the texts of a table, as a screen reader has them."""
    table = page.locator(f".st-key-{key} table")
    table.wait_for(state="attached", timeout=LIMIT_MS)
    # In one step: the page may refresh between two.
    found: list[list[str]] = table.evaluate(
        "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return found


def until_row(page: Page, key: str, *row: str) -> None:
    """Wait until the table has a row that begins so."""
    wait_until(
        lambda: list(row) in [found[: len(row)] for found in cells(page, key)], LIMIT_MS / 1000, f"{key} has {row[0]}"
    )


def statuses(page: Page, key: str = "groups-table") -> list[list[str]]:
    """Return group, status and lag of each row."""
    return [row[:3] for row in cells(page, key)[1:]]


def picture(page: Page, name: str) -> None:
    """Keep what the page shows, without the empty room below it; docs/page*.png are such pictures."""
    page.wait_for_function("""!document.querySelector('[data-stale="true"]')""", timeout=LIMIT_MS)
    page.get_by_test_id("stMainBlockContainer").screenshot(path=SHOTS / name)
