"""Charts of many series, measured in a real browser."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from support.many_series import APPS
from support.seeing import LIMIT_MS, SHOTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser

BY_INSTANCE, SUM, LAG = "By instance", "Sum over time", "Lag by group, records"
PLOT = "svg .role-frame.root > g > path.background"
"""The area between the axes."""
MIN_PLOT_PX = 200
MAX_LEGEND_PX = 120
TOP = 10


def chart(page: Page, title: str) -> Locator:
    """Return the chart with this title once it is drawn."""
    found = page.locator(f'//p[normalize-space()="{title}"]/following::*[@data-testid="stVegaLiteChart"][1]')
    found.locator(PLOT).first.wait_for(state="attached", timeout=LIMIT_MS)
    return found


def colors(found: Locator) -> list[str]:
    """Return the colour of each line, and of the upper edge of the others."""
    strokes: list[str] = found.locator("svg .mark-line path").evaluate_all(
        "paths => paths.map(path => path.getAttribute('stroke'))"
    )
    return strokes


def times(found: Locator) -> list[list[object]]:
    """Return the labels of the time axis, and where each of them is, in percent of the plot's width."""
    places: list[list[object]] = found.evaluate(
        """(chart, plotted) => {
            const middle = box => box.x + box.width / 2, plot = chart.querySelector(plotted).getBoundingClientRect();
            return [...chart.querySelector("svg .role-axis-label").querySelectorAll("text")].map(text => [
                text.textContent, Math.round((middle(text.getBoundingClientRect()) - plot.x) / plot.width * 50) * 2]);
        }""",
        PLOT,
    )
    return places


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_charts_keep_their_height(crowded_page: tuple[str, int], look: Callable, width: int, scheme: str) -> None:
    """With 20 and 60 instances and 40 groups the plot is as high as with one; ten series and the others have a colour.

    The legend names each of them, is low, and is no wider than the chart. Charts of one view have one time range.
    """
    url, last_ms = crowded_page
    at = datetime.fromtimestamp(last_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    views = [({"view": "metrics", "app": app}, BY_INSTANCE, instances) for app, instances in APPS.items()]
    for view, title, series in [*views, ({"view": "groups"}, LAG, 40)]:
        address = f"{url}/?{urlencode({**view, 'at': at})}"
        with look(address, color_scheme=scheme, viewport={"width": width, "height": 1700}) as page:
            found = chart(page, title)
            heights = page.locator(PLOT).evaluate_all("plots => plots.map(plot => plot.getBoundingClientRect().height)")
            assert min(heights) >= MIN_PLOT_PX, (view, heights)
            shown = min(series, TOP) + (series > TOP)
            drawn = colors(found)
            assert (len(drawn), len(set(drawn))) == (shown, shown), view
            legend = found.locator('xpath=following::ul[@class="chart-legend"][1]')
            names = legend.locator("li").all_inner_texts()
            assert len(names) == (shown if series > 1 else 0)
            if series > TOP:
                assert names[-1].startswith(f"{series - TOP} others")
                high, wide, room = legend.evaluate("list => [list.clientHeight, list.scrollWidth, list.clientWidth]")
                assert 0 < high <= MAX_LEGEND_PX
                assert wide <= room
            # Charts of another width may have other labels.
            if title == BY_INSTANCE and width == 400:
                assert times(found) == times(chart(page, SUM))
            page.screenshot(path=SHOTS / f"charts-{view['view']}-{series}-{width}-{scheme}.png", full_page=True)
