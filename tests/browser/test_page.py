"""The page in a browser, served by Streamlit over a local store."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.browser import (
    OVERFLOWS,
    SCREENSHOTS,
    TIMEOUT_MS,
    cells,
    screenshot,
    statuses,
    tile,
    until,
    until_chart,
    until_row,
    until_sortable,
)
from support.lag import Rounds, group, round_of
from support.page_history import History, counter_point
from support.wait import wait_until
from tallystream_aggregator.sinks.base import Sink
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink

pytestmark = [pytest.mark.browser, pytest.mark.timeout(700)]


@pytest.fixture
def spec(tmp_path: Path) -> str:
    return f"local:{tmp_path / 'store.db'}"


@pytest.fixture
def sink(spec: str) -> Iterator[Sink]:
    """Yield the store, which tests write to while the page reads it."""
    opened = open_sink(StoreSettings.parse(spec))
    opened.setup()
    yield opened
    opened.close()


REFUSED = "the page refused a wrong password, the last from 127.0.0.1"
VALUES = "all => all.map(one => one.value)"
CUT_OFF = """table => [table, ...table.querySelectorAll("td")].filter(one => one.scrollWidth > one.clientWidth + 1 ||
    one.getBoundingClientRect().right > innerWidth).map(one => one.textContent)"""
"""The texts of a table that are cut off or outside the screen."""
VISIBLE = "cell => cell.getBoundingClientRect().height > 0 && cell.scrollWidth <= cell.clientWidth + 1"
"""Whether the complete text of a cell is visible."""


def now_ms() -> int:
    return round(time.time() * 1000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_view_has_each_app(past: Callable, open_page: Callable, scheme: str) -> None:
    """An app has its main sum with rate and trend, its slowest timer, its lag, what was lost and processed twice."""
    with open_page(past(), color_scheme=scheme) as page:
        until_row(page, "apps-table", "billing", *["\N{EN DASH}"] * 3, "invoices topic=orders", "55", "0")
        _, _, orders, _ = cells(page, "apps-table")
        assert orders[4:7] == ["records.processed topic=orders", "1,232,567", "1,000"]
        assert orders[8:] == ["120 ms batch", "4,317", "0", "1,500 to 1,725"]
        for width in (1400, 400):
            page.set_viewport_size({"width": width, "height": 1700})
            assert page.locator(".st-key-apps-table").evaluate(CUT_OFF) == [], f"{width} px wide"
            screenshot(page, f"home-{scheme}-{width}.png")
        page.get_by_role("link", name="orders", exact=True).click()
        until(page, "Sum of records.processed", "1,232,567")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_overview_has_the_worst_first(past: Callable, open_page: Callable, scheme: str) -> None:
    """Each group has its status, lag, time lag, time to catch up, trend and reason, in the browser's colour scheme."""
    with open_page(past(view="groups"), color_scheme=scheme) as page:
        until(page, "Worst: audit", "2,360")
        assert tile(page, "Groups") == "4"
        assert "1 ERR · 1 WARN" in page.get_by_test_id("stMetric").first.inner_text()
        page.get_by_text("History at").wait_for(timeout=TIMEOUT_MS)
        assert statuses(page) == [
            ["audit", "ERR", "2,360"],
            ["billing", "WARN", "≥ 4,317"],
            ["old", "GONE", "7"],
            ["tallystream-aggregator", "OK", "17"],
            ["tallystream-shipper", "OK", "0"],
        ]
        first, second = cells(page, "groups-table")[1:3]
        assert re.fullmatch(r"[12] min( \d+ s)?", first[3])
        assert first[4] == "never at this rate"
        assert first[6] == "1"
        assert "STOP in orders/0" in first[7]
        assert "Nothing valid is committed in 1 of 2 partitions, with 10 records." in second[7]
        page.locator('[data-testid="stVegaLiteChart"] svg').first.wait_for(timeout=TIMEOUT_MS)
        shade = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
        assert (int(re.findall(r"\d+", shade)[0]) > 200) is (scheme == "light")
        for width in (1400, 400):
            page.set_viewport_size({"width": width, "height": 1700 if width > 640 else 3400})
            assert page.locator(".st-key-groups-table").evaluate(CUT_OFF) == [], f"{width} px wide"
            screenshot(page, f"groups-{scheme}-{width}.png")


def test_one_group_by_partition(past: Callable, open_page: Callable) -> None:
    """A stopped consumer has its duration, its complete reason, its partitions, its lag over time and its rates."""
    with open_page(past(view="groups")) as page:
        until(page, "Worst: audit", "2,360")
        page.locator(".st-key-group input").click()
        page.get_by_role("option", name="audit").click()
        until_chart(page, "Lag by partition, records")
        page.get_by_text("records wait, and the committed offset has not moved for").first.wait_for(timeout=TIMEOUT_MS)
        assert tile(page, "Members") == "0"
        page.wait_for_url(re.compile(r"group=audit"), timeout=TIMEOUT_MS)
        page.locator('[data-testid="stVegaLiteChart"] svg').nth(2).wait_for(timeout=TIMEOUT_MS)
        reason = page.locator(".st-key-partitions-table tbody td").last
        reason.wait_for(state="attached", timeout=TIMEOUT_MS)
        for width in (1400, 400):
            page.set_viewport_size({"width": width, "height": 1700 if width > 640 else 3400})
            assert reason.evaluate(VISIBLE), f"{width} px wide: {reason.text_content()}"
            assert page.locator(".st-key-partitions-table").evaluate(CUT_OFF) == [], f"{width} px wide"
            screenshot(page, f"group-{width}.png")
        assert [row[:4] for row in cells(page, "partitions-table")[1:]] == [["orders", "0", "STOP", "2,360"]]


def test_a_moment_in_the_past(past: Callable, open_page: Callable) -> None:
    """A link with a time shows the state at that time: before a group was deleted and another one stopped.

    There are ways back to now and to some time ago.
    """
    with open_page(past(ago_s=398, view="groups")) as page:
        page.get_by_text("History at").wait_for(timeout=TIMEOUT_MS)
        wait_until(lambda: {row[0]: row[1:] for row in statuses(page)}["audit"] == ["OK", "0"], 60, "the past is shown")
        assert {row[0]: row[1] for row in statuses(page)}["old"] != "GONE"
        page.locator('[data-testid="stPopover"] button').click()
        page.get_by_role("button", name="Back to now").click()
        page.get_by_text("Data as of").wait_for(timeout=TIMEOUT_MS)
        wait_until(lambda: {row[0]: row[1] for row in statuses(page)}["old"] == "GONE", 60, "the present is shown")
        for width in (400, 1400):
            page.set_viewport_size({"width": width, "height": 900})
            page.screenshot(path=SCREENSHOTS / f"time-{width}.png")
        page.get_by_role("button", name="1h ago").click()
        page.wait_for_url(re.compile("at="), timeout=TIMEOUT_MS)
        page.get_by_text("No lag has been collected yet").wait_for(timeout=TIMEOUT_MS)


def test_a_metric_with_instances_and_restarts(past: Callable, open_page: Callable) -> None:
    """A link opens a metric. Another app has its own metric with the sum, the rate, the instances and restarts."""
    with open_page(past(view="metrics", app="billing", metric="invoices", range="5m")) as page:
        until(page, "Sum of invoices", "55")
        page.locator(".st-key-app input").click()
        page.get_by_role("option", name="orders").click()
        until(page, "Sum of records.processed", "1,232,567")
        chosen = page.locator(".st-key-metric input")
        wait_until(
            lambda: chosen.evaluate_all(VALUES) == ["records.processed"], TIMEOUT_MS / 1000, "the metric is that app's"
        )
        assert tile(page, "Rate") == "1,000/s"
        assert tile(page, "Living instances") == "2"
        # The tables are drawn after the tiles.
        until_row(page, "sums-table", "queue.length", "", "gauge", "7.50")
        until_row(page, "sums-table", "records.processed", "topic=orders", "counter", "1,232,567")
        wait_until(lambda: len(cells(page, "events-table")) == 2, TIMEOUT_MS / 1000, "one event is shown")
        assert cells(page, "events-table")[1][1:] == ["restart", "restart: orders-2"]
        page.wait_for_url(re.compile(r"app=orders.*metric=records\.processed"), timeout=TIMEOUT_MS)
        assert "range=5m" in page.url
        page.locator('[data-testid="stVegaLiteChart"] svg').nth(2).wait_for(timeout=TIMEOUT_MS)
        page.set_viewport_size({"width": 1400, "height": 2400})
        screenshot(page, "metrics.png")
        page.locator(".st-key-metric input").click()
        page.get_by_role("option", name="batch", exact=True).click()
        until(page, "Calls of batch", "640")
        assert tile(page, "Mean") == "12.5 ms"
        assert tile(page, "p50, p95, p99") == "9 ms, 40 ms, 120 ms"
        until_chart(page, "Calls over time")
        until_chart(page, "Percentiles over time")


def test_what_was_sent_and_processed(past: Callable, open_page: Callable) -> None:
    """The tiles have the numbers of the command, each with its certainty. An app without positions is not offered.

    They are of the newest moment up to which the store has all: what was counted in the newest round is not among them.
    """
    with open_page(past(view="compare", app="orders", metric="records.processed")) as page:
        until(page, "Processed twice at most", "1,725")
        titles = ("Sent", "Processed", "Lost", "In flight", "Counted twice")
        numbers = {title: page.get_by_test_id("stMetric").filter(has_text=title).first.inner_text() for title in titles}
        assert {title: text.split()[-2:] for title, text in numbers.items()} == {
            "Sent": ["1,231,067", "exact"],
            "Processed": ["1,228,567", "exact"],
            "Lost": ["0", "exact"],
            "In flight": ["4,000", "exact"],
            "Counted twice": ["1,500", "exact"],
        }
        bounds = page.get_by_text("at least 1,500, at most 1,725")
        bounds.wait_for(timeout=TIMEOUT_MS)
        page.get_by_text("225 records were taken and not counted").wait_for(timeout=TIMEOUT_MS)
        until_row(page, "compare-table", "orders", "0", "1,231,067", "1,227,067", "0", "4,000")
        page.locator('[data-testid="stVegaLiteChart"] svg').first.wait_for(timeout=TIMEOUT_MS)
        for width, name in ((1400, "compare.png"), (400, "compare-400.png")):
            page.set_viewport_size({"width": width, "height": 1700 if width > 640 else 3400})
            assert bounds.evaluate(VISIBLE), f"{width} px wide"
            wait_until(lambda: page.evaluate(OVERFLOWS) == [], 20, f"all is within {width} px")
            screenshot(page, name)
    with open_page(past(view="metrics", app="billing")) as page:
        until(page, "Sum of invoices", "55")
        page.locator(".st-key-view").get_by_role("radio", name="Sent and processed").click()
        until(page, "Processed twice at most", "1,725")
        page.wait_for_url(
            re.compile(r"view=compare&app=orders&metric=records\.processed&sent=shop"), timeout=TIMEOUT_MS
        )
        page.locator(".st-key-compare-app input").click()
        page.get_by_role("option", name="shop").wait_for(timeout=TIMEOUT_MS)
        assert page.get_by_role("option").all_inner_texts() == ["orders", "shop"]
        page.keyboard.press("Escape")
        page.locator('[class*="st-key-compare-sent"] input').click()
        page.get_by_role("option", name="\N{EN DASH}").click()
        until(page, "Lost", "\N{EN DASH}")
    with open_page(past(view="compare", app="billing")) as page:
        page.get_by_text("reports no positions").wait_for(timeout=TIMEOUT_MS)


def test_the_page_requires_its_password_and_refreshes(
    sink: Sink, serve: Callable, open_page: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows nothing before the login. A wrong password is logged, the right one is valid after a reload.

    Then a new round appears without a reload, and the charts are still the same elements.
    """
    monkeypatch.setenv("TALLYSTREAM_PAGE_PASSWORD", "open sesame")
    history = History(sink)
    spec = f"local:{tmp_path / 'store.db'}"
    with serve(spec) as url, open_page(f"{url}/?view=groups&group=audit", expected="401") as page:
        field = page.get_by_label("Password", exact=True)
        field.wait_for(timeout=TIMEOUT_MS)
        assert "audit" not in page.inner_text("body")
        field.fill("wrong")
        field.press("Enter")
        page.get_by_text("That is not the password").wait_for(timeout=TIMEOUT_MS)
        log = tmp_path / "page.log"
        wait_until(lambda: REFUSED in log.read_text(), 20, "the wrong password is logged")
        field.fill("open sesame")
        field.press("Enter")
        until_chart(page, "Lag by partition, records")
        assert "open sesame" not in page.content()
        page.reload()
        until_chart(page, "Lag by partition, records")
        charts = page.locator('[data-testid="stVegaLiteChart"] svg')
        charts.nth(2).wait_for(timeout=TIMEOUT_MS)
        before = charts.element_handles()
        history.round()
        until(page, "Lag, records", "2,400")
        assert [handle.evaluate("element => element.isConnected") for handle in before] == [True] * 3
    assert "sesame" not in log.read_text()


def test_a_click_on_a_column_sorts(spec: str, sink: Sink, serve: Callable, open_page: Callable) -> None:
    """First from high to low, then from low to high, then as before. A refresh keeps the order. A dash comes last.

    The table of a view to which one switches is sorted, too.
    """

    def names() -> list[str]:
        return [row[0] for row in statuses(page)]

    history = History(sink)
    with serve(spec) as url, open_page(f"{url}/?view=groups") as page:
        until(page, "Worst: audit", "2,360")
        before = names()
        assert before == ["audit", "billing", "old", "tallystream-aggregator", "tallystream-shipper"]
        column = page.locator(".st-key-groups-table").get_by_role("button", name="Time lag")
        until_sortable(page, "groups")
        column.click()
        by_time = ["billing", "audit", "tallystream-aggregator", "tallystream-shipper", "old"]
        wait_until(lambda: names() == by_time, 20, "the oldest record is first")
        assert page.get_by_role("columnheader", name="Time lag").get_attribute("aria-sort") == "descending"
        history.round()
        wait_until(lambda: ["audit", "ERR", "2,400"] in statuses(page), 60, "there is a new round")
        assert names() == by_time
        column.click()
        by_time = [*reversed(by_time[:-1]), "old"]
        wait_until(lambda: names() == by_time, 20, "the newest record is first")
        column.click()
        wait_until(lambda: names() == before, 20, "the worst is first")
        page.locator(".st-key-groups-table").get_by_role("button", name="Lag", exact=True).click()
        wait_until(lambda: names()[:2] == ["billing", "audit"], 20, "the largest lag is first")
        page.locator(".st-key-group input").click()
        page.get_by_role("option", name="billing").click()
        table = page.locator(".st-key-partitions-table")
        until_sortable(page, "partitions")
        table.get_by_role("button", name="Partition").click()
        head = table.get_by_role("columnheader", name="Partition")
        wait_until(lambda: head.get_attribute("aria-sort") == "descending", 20, "another view's table is sorted")
        assert [row[1] for row in cells(page, "partitions-table")[1:]] == ["1", "0"]


def test_an_empty_store_has_instructions(spec: str, sink: Sink, serve: Callable, open_page: Callable) -> None:
    """Without points there are a sentence and two commands. The first points appear without a reload."""
    with serve(spec) as url, open_page(f"{url}/?view=groups") as page:
        page.get_by_text("The store is empty").wait_for(timeout=TIMEOUT_MS)
        assert "tallystream up" in page.inner_text("body")
        sink.write([counter_point(7, now_ms())])
        page.get_by_text("No lag has been collected yet").wait_for(timeout=TIMEOUT_MS)
        sink.write(Rounds().points(round_of(group("g", (1, 4))), now_ms()))
        until(page, "Worst: g", "3")


def test_an_unavailable_store_is_an_error(
    serve: Callable, open_page: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the store's address and what to do, and not the token."""
    monkeypatch.setenv("INFLUXDB_TOKEN", "a-very-secret-token")
    monkeypatch.setenv("INFLUXDB_ORG", "org")
    monkeypatch.setenv("INFLUXDB_BUCKET", "bucket")
    with serve("influxdb:http://127.0.0.1:1") as url, open_page(url) as page:
        page.get_by_text("The store can't be read").wait_for(timeout=TIMEOUT_MS)
        text = page.inner_text("body")
        assert "127.0.0.1:1" in text
        assert "tallystream status" in text
        assert "a-very-secret-token" not in page.content()
