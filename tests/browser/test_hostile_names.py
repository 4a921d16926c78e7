"""Names of groups, topics, apps and metrics are shown on the page as text."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page

from support import stores
from support.browser import TIMEOUT_MS, until_complete
from support.lag import Rounds, group, round_of
from support.page_history import counter_point
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

HOST = "foreign.example"
NAME = (
    f"x ![i](http://{HOST}/i.png) [l](http://{HOST}/l) <http://{HOST}/a> http://{HOST}/b www.{HOST} "
    f"<img src=//{HOST}/t> me@{HOST} :red[r] :smile: :material/home: $e^x$ `` `c` **b** _i_ ~~s~~ <b>h</b>\n\n# h"
)
"""A name with everything that Streamlit's Markdown would render."""
COUNTER = f"{NAME} counter"


def write(spec: str) -> None:
    """Write a group that has stopped, sums, instances, positions and an event, all with that name."""
    rounds, now = Rounds(), round(time.time() * 1000)
    points: list[Point] = []
    for ago in range(150, -1, -10):
        stopped = group(NAME, (5, 4000), topic=NAME, members=0)
        points += rounds.points(round_of(stopped), now - ago * 1000)
    labels = {"app": NAME, "topic": NAME}
    row = labels | {"metric_type": "counter", "instance": NAME}
    position = labels | {"metric_type": "position", "partition": "0"}
    counted_twice = Point(f"{COUNTER}.position", position, {"start": 0, "position": 5}, now)
    event = Point("tallystream.events", {"app": NAME, "kind": "restart", "instance": NAME}, {"text": NAME}, now)
    sums = [counter_point(7, now - 9000, app=NAME, name=COUNTER), counter_point(9, now, app=NAME, name=COUNTER)]
    points += [*sums, counted_twice, Point(f"instance:{COUNTER}", row, {"count": 9}, now), event]
    assert stores.write(StoreSettings.parse(spec), points) == 0


def check(page: Page) -> None:
    """Check that the page shows the name unchanged, and that no link, image or icon comes from it."""
    until_complete(page)
    text = page.locator("body").inner_text()
    assert f"![i](http://{HOST}/i.png)" in text
    rendered = f'[src*="{HOST}"], .katex, [data-testid="stMain"] :is(del, em, h3, b):not(.vega-embed *, .chart-title)'
    assert page.evaluate("[...document.links].filter(link => link.host !== location.host).map(link => link.href)") == []
    assert page.locator(rendered).count() == 0, page.locator(rendered).first.evaluate("element => element.outerHTML")
    assert "😄" not in text
    assert page.locator('[data-testid="stMain"] [data-testid="stIconMaterial"]', has_text="home").count() == 0


def test_names_are_shown_as_text(tmp_path: Path, serve: Callable, open_page: Callable) -> None:
    """No name of a group, topic, app, metric, tag or instance is rendered as Markdown or causes a request."""
    spec = f"local:{tmp_path / 'store.db'}"
    write(spec)
    addresses = {
        "home": {},
        "groups": {"view": "groups"},
        "group": {"group": NAME},
        "unknown": {"group": f"{NAME} that nobody knows"},
        "metrics": {"view": "metrics", "app": NAME},
        "later": {"view": "metrics", "app": NAME, "metric": f"{NAME} later"},
        "compare": {"view": "compare", "app": NAME, "metric": COUNTER},
        "no-positions": {"view": "compare", "app": NAME, "metric": NAME},
    }
    waits = {
        "home": "Main sum",
        "groups": "Worst",
        "group": "Members",
        "unknown": "The store has no lag of the group",
        "metrics": "Living instances",
        "later": "No points of",
        "compare": "Lost, in flight and twice over time",
        "no-positions": "reports no positions",
    }
    with serve(spec) as url, open_page(url) as page:
        for name, params in addresses.items():
            if params:
                page.goto(f"{url}/?{urlencode(params)}")
            page.get_by_text(waits[name]).first.wait_for(timeout=TIMEOUT_MS)
            if name in ("groups", "group", "metrics", "compare"):
                page.locator('[data-testid="stVegaLiteChart"] svg').first.wait_for(timeout=TIMEOUT_MS)
                chart = page.locator('[data-testid="stVegaLiteChart"] svg').first.bounding_box()
                assert chart is not None
                page.mouse.move(0, 0)
                page.mouse.move(chart["x"] + chart["width"] - 40, chart["y"] + 60)
                page.locator("#vg-tooltip-element.visible").wait_for(timeout=TIMEOUT_MS)
            check(page)
