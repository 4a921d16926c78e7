"""The layout of charts with many series, measured in a browser."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from support.browser import TIMEOUT_MS
from support.many_series import APPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

BY_INSTANCE, SUM, LAG = "By instance", "Sum over time", "Lag by group, records"
PLOT = "svg .role-frame.root > g > path.background"
"""The area between the axes."""
MIN_PLOT_PX = 200
MAX_LEGEND_PX = 120
TOP = 10


def chart(page: Page, title: str) -> Locator:
    """Wait until the chart with this title is drawn, and return it."""
    found = page.locator(f'//h3[normalize-space()="{title}"]/following::*[@data-testid="stVegaLiteChart"][1]')
    found.locator(PLOT).first.wait_for(state="attached", timeout=TIMEOUT_MS)
    return found


def colors(chart: Locator) -> list[str]:
    """Return the colour of each line, and of the upper edge of the others."""
    strokes: list[str] = chart.locator("svg .mark-line path").evaluate_all(
        "paths => paths.map(path => path.getAttribute('stroke'))"
    )
    return strokes


def times(chart: Locator) -> list[list[object]]:
    """Return the labels of the time axis and their positions, in percent of the plot's width."""
    labels: list[list[object]] = chart.evaluate(
        """(chart, plotted) => {
            const middle = box => box.x + box.width / 2, plot = chart.querySelector(plotted).getBoundingClientRect();
            return [...chart.querySelector("svg .role-axis-label").querySelectorAll("text")].map(text => [
                text.textContent, Math.round((middle(text.getBoundingClientRect()) - plot.x) / plot.width * 50) * 2]);
        }""",
        PLOT,
    )
    return labels


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_charts_keep_their_height(crowded_page: tuple[str, int], open_page: Callable, width: int, scheme: str) -> None:
    """With 20 and 60 instances and 40 groups the plot is as high as with one. Ten series and the band have a colour.

    The legend has their names, and is low and no wider than the chart. Charts of one view have the same time range.
    """
    url, last_ms = crowded_page
    at = datetime.fromtimestamp(last_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    views = [({"view": "metrics", "app": app}, BY_INSTANCE, instances) for app, instances in APPS.items()]
    groups = f"{url}/?{urlencode({'view': 'groups', 'at': at})}"
    with open_page(groups, color_scheme=scheme, viewport={"width": width, "height": 1700}) as page:
        for view, title, series in [({"view": "groups"}, LAG, 40), *views]:
            if title != LAG:
                page.goto(f"{url}/?{urlencode({**view, 'at': at})}")
            found = chart(page, title)
            heights = page.locator(PLOT).evaluate_all("plots => plots.map(plot => plot.getBoundingClientRect().height)")
            assert min(heights) >= MIN_PLOT_PX, (view, heights)
            lines = min(series, TOP) + (series > TOP)
            drawn = colors(found)
            assert (len(drawn), len(set(drawn))) == (lines, lines), view
            legend = found.locator('xpath=following::ul[@class="chart-legend"][1]')
            names = legend.locator("li").all_inner_texts()
            assert len(names) == (lines if series > 1 else 0)
            if series > TOP:
                assert names[-1].startswith(f"{series - TOP} others")
                sizes = legend.evaluate("list => [list.clientHeight, list.scrollWidth, list.clientWidth]")
                height, content_width, legend_width = sizes
                assert 0 < height <= MAX_LEGEND_PX
                assert content_width <= legend_width
            # Charts of another width may have other labels.
            if title == BY_INSTANCE and width == 400:
                assert times(found) == times(chart(page, SUM))
