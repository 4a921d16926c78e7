"""The page in the states of a system, on wide and narrow screens, light and dark: pictures to look at."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

import pytest

from support.browser import OVERFLOWS, TIMEOUT_MS, screenshot, until_complete
from support.lag import Rounds, group, round_of
from support.wait import wait_until
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink
from tallystream_aggregator.sums import Sum

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

EVERY_S = 10
WIDE, NARROW = 1400, 400
BRIGHT = "Number(getComputedStyle(document.querySelector('.stApp')).backgroundColor.match(/\\d+/)[0]) > 200"


class State(NamedTuple):
    """A state of the system: the answer on the page, the views to look at, and what the store has.

    The app has run for `seconds` with so many instances. A minute ago some of them `ended` or fell `silent`. Of the
    groups the first ones `stopped`.
    """

    name: str
    answer: str
    views: tuple[str, ...]
    instances: int = 0
    seconds: int = 600
    ended: int = 0
    silent: int = 0
    groups: int = 0
    stopped: int = 0


STATES = (
    State("empty", "The store is empty", ("home",), seconds=0),
    State("no-app", "Everything is well.", ("home",)),
    State("first-sum", "Everything is well.", ("home", "metrics"), instances=1, seconds=4),
    State("1-instance", "Everything is well.", ("metrics",), instances=1),
    State("10-instances", "Everything is well.", ("metrics",), instances=10),
    State("40-instances", "Everything is well.", ("home", "metrics"), instances=40),
    State("3-groups", "1 critical problem", ("groups", "runbook"), groups=3, stopped=1),
    State("40-groups", "5 problems: 5 critical", ("groups", "group"), groups=40, stopped=5),
    State("crash", "1 warning", ("home", "metrics"), instances=3, silent=1, groups=1),
    State("crash-of-the-last", "1 warning", ("home",), instances=3, ended=2, silent=1),
    State("scale-in", "Everything is well.", ("home", "metrics"), instances=3, ended=2, groups=1),
)
ADDRESSES = {
    "home": {},
    "metrics": {"view": "metrics", "app": "shop", "metric": "queue.length"},
    "groups": {"view": "groups"},
    "group": {"group": "group-01"},
    "runbook": {"view": "runbook", "section": "lag-status"},
}


def points(state: State, now_ms: int) -> list[Point]:
    """Return the points of the last ten minutes. Aggregator and shipper work all the time, but not in no seconds."""
    rounds, found = Rounds(), list[Point]()
    if not state.seconds:
        return []
    for ago_s in range(600, -1, -EVERY_S):
        ts_ms, end = now_ms - ago_s * 1000, 100_000 - ago_s * 20
        stop = min(end, 100_000 - 120 * 20)
        names = [f"group-{number:02}" for number in range(1, state.groups + 1)]
        groups = [group(name, (stop if at < state.stopped else end - at * 7, end)) for at, name in enumerate(names)]
        own = [group(f"tallystream-{name}", (end, end), topic=name) for name in ("aggregator", "shipper")]
        found += rounds.points(round_of(*groups, *own), ts_ms)
    if state.instances:
        for ago_s in range(state.seconds, -1, -min(EVERY_S, state.seconds)):
            found += of_app(state, now_ms - ago_s * 1000, ago_s)
    return found


def of_app(state: State, ts_ms: int, ago_s: int) -> list[Point]:
    """Return the points of the app `shop` some seconds ago."""
    gone = 0 if ago_s > 60 else state.ended + state.silent
    living, seconds = state.instances - gone, state.seconds - ago_s
    numbers = Sum(app="shop", name="tallystream.instances", type="instances", ts=ts_ms)
    numbers.instances = living
    numbers.ended, numbers.silent = (state.ended, state.silent) if gone else (0, 0)
    alive = {"instances": living, "lives": living, "retired": 0}
    placed = seconds * 157 * state.instances + 87
    queues = {number: 7.5 + number for number in range(1, living + 1)}
    percentiles = {"p50": 0.009, "p95": 0.04, "p99": 0.12 + seconds % 70 / 1000}
    found = [
        point(numbers),
        Point("orders.placed", {"app": "shop", "metric_type": "counter"}, {"count": placed, **alive}, ts_ms),
        Point(
            "queue.length",
            {"app": "shop", "metric_type": "gauge"},
            {"sum": sum(queues.values()), "number": living, **alive},
            ts_ms,
        ),
        Point(
            "checkout.request",
            {"app": "shop", "metric_type": "timer"},
            {"count": placed // 3, "sum": placed / 300, **percentiles, **alive},
            ts_ms,
        ),
    ]
    for number, length in queues.items():
        tags = {"app": "shop", "metric_type": "gauge", "instance": f"shop-{number}"}
        found.append(Point("instance:queue.length", tags, {"value": length, "life": str(number)}, ts_ms))
    return found


def fill(store: Path, state: State) -> None:
    """Replace the store by that of the state."""
    for suffix in ("", "-wal", "-shm"):
        store.with_name(store.name + suffix).unlink(missing_ok=True)
    sink = open_sink(StoreSettings.parse(f"local:{store}"))
    sink.setup()
    sink.write(points(state, round(time.time() * 1000)))
    sink.close()


def look(page: Page, name: str, state: State) -> None:
    """Check that the answer is there, that nothing is cut off at any width, and take the pictures."""
    page.get_by_text(state.answer).first.wait_for(timeout=TIMEOUT_MS)
    until_complete(page)
    for width, scheme in (WIDE, "light"), (WIDE, "dark"), (NARROW, "dark"), (NARROW, "light"):
        page.set_viewport_size({"width": width, "height": 3000 if width == WIDE else 6000})
        page.emulate_media(color_scheme=scheme)
        # A chart takes a moment to get its new width, and the page its new colours.
        wait_until(lambda: page.evaluate(OVERFLOWS) == [], 20, f"all of {name} is within {width} px")
        page.wait_for_function(BRIGHT if scheme == "light" else f"!({BRIGHT})", timeout=TIMEOUT_MS)
        screenshot(page, f"{name}-{scheme}-{width}.png")


def test_every_state_fits_the_screen(tmp_path: Path, serve: Callable, open_page: Callable) -> None:
    """From the empty store to a crash, the answer is the right one, and all texts are within the screen."""
    store = tmp_path / "store.db"
    fill(store, STATES[0])
    with serve(f"local:{store}") as url, open_page(url, color_scheme="light") as page:
        for state in STATES:
            fill(store, state)
            for view in state.views:
                page.goto(f"{url}/?{urlencode(ADDRESSES[view])}")
                look(page, f"{state.name}-{view}", state)
