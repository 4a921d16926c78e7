"""The page as a person sees it: real Streamlit, a real store, a real browser."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from support.stores import influx_bucket
from tallystream.aggregator.sinks.base import Point
from tallystream.aggregator.sinks.stores import StoreSettings, open_sink
from tallystream.dashboards.lag import GroupLag, partition_lag, points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from support.influx import Influx
    from tallystream.aggregator.sinks.base import Sink

pytestmark = pytest.mark.browser

LIMIT_MS = 60_000
"""How long the browser may take: a limit and no expectation."""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """A local store of this test's own."""
    return f"local:{tmp_path / 'store.db'}"


@pytest.fixture
def sink(spec: str) -> Iterator[Sink]:
    """The store, to be written to while the page reads it."""
    opened = open_sink(StoreSettings.parse(spec))
    opened.setup()
    yield opened
    opened.close()


def now_ms() -> int:
    return round(time.time() * 1000)


def counted(
    count: int, ts_ms: int, *, instances: int = 2, app: str = "orders", name: str = "records.processed"
) -> Point:
    fields = {"count": count, "lives": instances + 1, "instances": instances, "retired": 0}
    return Point(name, {"app": app, "metric_type": "counter", "topic": "orders"}, fields, ts_ms)


def lag(ts_ms: int, **behind: int) -> list[Point]:
    """One round: each group has one partition without a commit, and is behind by the given number in the other."""
    groups = [
        GroupLag(
            name.replace("_", "-"),
            (
                partition_lag("orders", 0, start=0, end=ts_ms // 100, committed=ts_ms // 100 - records),
                partition_lag("orders", 1, start=0, end=10, committed=None),
            ),
        )
        for name, records in behind.items()
    ]
    return points(groups, ts_ms)


def history(sink: Sink) -> None:
    """Ten minutes in which everything moved."""
    now = now_ms()
    for ago in range(600, 0, -2):
        ts = now - ago * 1000
        done = 1_234_567 - ago * 1000
        found = [counted(done, ts, instances=1 if ago > 300 else 2)]
        found.append(
            Point(
                "queue.length",
                {"app": "orders", "metric_type": "gauge"},
                {"sum": 7.5, "number": 2, "instances": 2, "lives": 2},
                ts,
            )
        )
        sink.write(
            [
                *found,
                *lag(ts, billing=ago * 50 + 4321, tallystream_aggregator=17 + ago // 30 % 3, tallystream_shipper=0),
            ]
        )
    sink.flush()


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


def test_the_numbers_that_a_person_reads(
    spec: str, sink: Sink, serve: Callable, look: Callable, tmp_path: Path
) -> None:
    """Sum, rate, living instances, worst lag and both tables show what the store holds; each chart is drawn."""
    history(sink)
    with serve(spec) as url, look(url) as page:
        until(page, "Sum of records.processed", "1,232,567")
        assert tile(page, "Rate") == "1,000/s"
        assert tile(page, "Living instances") == "2"
        assert tile(page, "Worst lag: billing") == "4,421"
        page.get_by_text("Data as of").wait_for(timeout=LIMIT_MS)
        page.locator(
            '[data-testid="stVegaLiteChart"] svg path.mark-line, [data-testid="stVegaLiteChart"] .mark-line path'
        ).first.wait_for(state="attached", timeout=LIMIT_MS)
        assert page.locator('[data-testid="stVegaLiteChart"] svg').count() == 3
        sums = cells(page, "sums-table")
        assert ["queue.length", "", "gauge", "7.50"] in [row[:4] for row in sums]
        assert ["records.processed", "topic=orders", "counter", "1,232,567"] in [row[:4] for row in sums]
        groups = cells(page, "groups-table")
        assert [row[:3] for row in groups[1:]] == [
            ["billing", "OK", "4421"],
            ["tallystream-aggregator", "OK", "17"],
            ["tallystream-shipper", "OK", "0"],
        ]
        assert groups[1][6].startswith("Nothing committed in 1 of 2 partitions.")
        assert [row[7] for row in groups[1:]] == ["consumer", "aggregator", "shipper"]
        page.screenshot(path=tmp_path / "page.png", full_page=True)


def test_it_refreshes_by_itself_without_drawing_anew(spec: str, sink: Sink, serve: Callable, look: Callable) -> None:
    """A point written now is on the page soon, nobody touching it, and its charts are still the same elements."""
    history(sink)
    with serve(spec) as url, look(url) as page:
        until(page, "Sum of records.processed", "1,232,567")
        charts = page.locator('[data-testid="stVegaLiteChart"] svg')
        charts.nth(2).wait_for(timeout=LIMIT_MS)
        before = charts.element_handles()
        sink.write([counted(2_000_001, now_ms(), instances=3), *lag(now_ms(), billing=999_000)])
        sink.flush()
        until(page, "Sum of records.processed", "2,000,001")
        until(page, "Living instances", "3")
        until(page, "Worst lag: billing", "999,000")
        assert [handle.evaluate("element => element.isConnected") for handle in before] == [True] * 3


def test_a_stopped_consumer_comes_first_with_the_reason(spec: str, sink: Sink, serve: Callable, look: Callable) -> None:
    """A consumer that commits no more, with records waiting: ERR, first in the table and in the tile, and why."""
    history(sink)
    now = now_ms()
    for ago in range(118, 0, -2):
        stood = partition_lag("orders", 0, start=0, end=9_900 - ago * 10, committed=min(9_000, 9_900 - ago * 10))
        sink.write(points([GroupLag("audit", (stood,), 0)], now - ago * 1000))
    sink.flush()
    with serve(spec) as url, look(url) as page:
        until(page, "Worst lag: audit", "880")
        assert "ERR" in page.get_by_test_id("stMetricDelta").inner_text()
        first = cells(page, "groups-table")[1]
        assert first[:3] == ["audit", "ERR", "880"]
        assert re.fullmatch(r"\d+ min( \d+ s)?", first[3])
        assert first[4] == "never at this rate"
        assert "STOP in orders/0" in first[6]
        assert "880 records wait" in first[6]


def test_a_link_shows_what_was_shared(spec: str, sink: Sink, serve: Callable, look: Callable) -> None:
    """App, metric, period and group come from the address, and what one chooses goes into it."""
    history(sink)
    sink.write([counted(55, now_ms(), app="billing", name="invoices")])
    sink.flush()
    with serve(spec) as url, look(f"{url}/?app=billing&metric=invoices&range=1h&group=billing") as page:
        until(page, "Sum of invoices", "55")
        page.get_by_text("Lag of billing by partition").wait_for(timeout=LIMIT_MS)
        assert [row[1:4] for row in cells(page, "partitions-table")[1:]] == [
            ["1", "NOTFOUND", ""],
            ["0", "OK", "4421"],
        ]
        page.locator(".st-key-app input").click()
        page.get_by_role("option", name="orders").click()
        until(page, "Sum of records.processed", "1,232,567")
        page.wait_for_url(re.compile(r"app=orders.*metric=records\.processed"), timeout=LIMIT_MS)
        assert "range=1h" in page.url
        assert "group=billing" in page.url


def test_an_empty_store_says_what_to_do_and_fills_by_itself(
    spec: str, sink: Sink, serve: Callable, look: Callable
) -> None:
    """No points: a sentence and two commands; the first point makes the page, with no hand at the browser."""
    with serve(spec) as url, look(url) as page:
        page.get_by_text("The store is there, and empty").wait_for(timeout=LIMIT_MS)
        assert "tallystream up" in page.inner_text("body")
        sink.write([counted(7, now_ms())])
        sink.flush()
        until(page, "Sum of records.processed", "7")
        page.get_by_text("No lag has been collected yet").wait_for(timeout=LIMIT_MS)


def test_a_store_that_is_away_says_so(serve: Callable, look: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreachable store is an error in words, with the address and what to do, and no token on the page."""
    monkeypatch.setenv("INFLUXDB_TOKEN", "a-very-secret-token")
    monkeypatch.setenv("INFLUXDB_ORG", "org")
    monkeypatch.setenv("INFLUXDB_BUCKET", "bucket")
    with serve("influxdb:http://127.0.0.1:1") as url, look(url) as page:
        page.get_by_text("The store can't be read").wait_for(timeout=LIMIT_MS)
        text = page.inner_text("body")
        assert "127.0.0.1:1" in text
        assert "tallystream status" in text
        assert "a-very-secret-token" not in page.content()


@pytest.mark.integration
def test_influxdb_gives_the_same_page(
    influxdb: Influx, serve: Callable, look: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a real InfluxDB the page shows the same numbers as over the local store, and refreshes by itself."""
    with influx_bucket(influxdb, f"page-{time.time_ns()}") as settings:
        for name, value in (("TOKEN", settings.token), ("ORG", settings.org), ("BUCKET", settings.bucket)):
            monkeypatch.setenv(f"INFLUXDB_{name}", value)
        sink = open_sink(settings)
        sink.setup()
        history(sink)
        with serve(settings.spec) as url, look(url) as page:
            until(page, "Sum of records.processed", "1,232,567")
            assert tile(page, "Rate") == "1,000/s"
            assert tile(page, "Living instances") == "2"
            assert tile(page, "Worst lag: billing") == "4,421"
            sink.write([counted(2_000_001, now_ms(), instances=3)])
            until(page, "Sum of records.processed", "2,000,001")
            assert settings.token not in page.content()
        sink.close()
