"""Names that other people chose, on the page: they are text, whatever they hold."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from support.history import counter_point
from support.lag import Rounds, found, group
from support.seeing import LIMIT_MS, SHOTS
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

HOST = "foreign.example"
NAME = (
    f"x ![i](http://{HOST}/i.png) [l](http://{HOST}/l) <http://{HOST}/a> http://{HOST}/b www.{HOST} "
    f"<img src=//{HOST}/t> me@{HOST} :red[r] :smile: :material/home: $e^x$ `` `c` **b** _i_ ~~s~~ <b>h</b>\n\n# h"
)
"""All that Streamlit's Markdown makes something else of."""
COUNTER = f"{NAME} counter"


def write(spec: str) -> None:
    """Write a group that has stopped, sums, instances, positions and an event, everything with that name."""
    sink, rounds, now = open_sink(StoreSettings.parse(spec)), Rounds(), round(time.time() * 1000)
    sink.setup()
    for ago in range(150, -1, -10):
        stopped = group(NAME, (5, 4000), topic=NAME, members=0)
        sink.write(rounds.points(found(stopped), now - ago * 1000))
    labels = {"app": NAME, "topic": NAME}
    row = labels | {"metric_type": "counter", "instance": NAME}
    position = labels | {"metric_type": "position", "partition": "0"}
    counted_twice = Point(f"{COUNTER}.position", position, {"start": 0, "position": 5}, now)
    event = Point("tallystream.events", {"app": NAME, "kind": "restart", "instance": NAME}, {"text": NAME}, now)
    sums = [counter_point(7, now - 9000, app=NAME, name=COUNTER), counter_point(9, now, app=NAME, name=COUNTER)]
    sink.write([*sums, counted_twice, Point(f"instance:{COUNTER}", row, {"count": 9}, now), event])
    sink.flush()
    sink.close()


def shown(page: Page) -> None:
    """Check that what is drawn holds the name as it is, and neither a link nor an image nor an icon of it."""
    page.wait_for_function("""!document.querySelector('[data-stale="true"]')""", timeout=LIMIT_MS)
    text = page.locator("body").inner_text()
    assert f"![i](http://{HOST}/i.png)" in text
    made = f'a[href*="{HOST}"], [src*="{HOST}"], .katex, [data-testid="stMain"] :is(del, em, h3, b):not(.vega-embed *)'
    assert page.locator(made).count() == 0, page.locator(made).first.evaluate("element => element.outerHTML")
    assert "😄" not in text
    assert page.locator('[data-testid="stMain"] [data-testid="stIconMaterial"]', has_text="home").count() == 0


def test_names_are_shown_as_text(tmp_path: Path, serve: Callable, look: Callable) -> None:
    """Groups, topics, apps, metrics, tags and instances make no link, image, icon or formula, and fetch nothing."""
    spec = f"local:{tmp_path / 'store.db'}"
    write(spec)
    addresses = {
        "groups": {},
        "group": {"group": NAME},
        "unknown": {"group": f"{NAME} that nobody knows"},
        "metrics": {"view": "metrics", "app": NAME},
        "later": {"view": "metrics", "app": NAME, "metric": f"{NAME} later"},
        "twice": {"view": "twice", "app": NAME, "metric": COUNTER},
        "no-positions": {"view": "twice", "app": NAME, "metric": NAME},
    }
    waits = {
        "groups": "Worst",
        "group": "Members",
        "unknown": "The store has no lag of the group",
        "metrics": "Living instances",
        "later": "No points of",
        "twice": "Processed twice over time",
        "no-positions": "reports no positions",
    }
    with serve(spec) as url:
        for name, asked in addresses.items():
            with look(f"{url}/?{urlencode(asked)}") as page:
                page.get_by_text(waits[name]).first.wait_for(timeout=LIMIT_MS)
                if name in ("groups", "group", "metrics", "twice"):
                    page.locator('[data-testid="stVegaLiteChart"] svg').first.wait_for(timeout=LIMIT_MS)
                    chart = page.locator('[data-testid="stVegaLiteChart"] svg').first.bounding_box()
                    assert chart is not None
                    page.mouse.move(chart["x"] + chart["width"] - 40, chart["y"] + 60)
                    page.locator("#vg-tooltip-element.visible").wait_for(timeout=LIMIT_MS)
                page.screenshot(path=SHOTS / f"hostile-{name}.png", full_page=True)
                shown(page)
