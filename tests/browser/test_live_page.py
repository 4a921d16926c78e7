"""The page over a running system."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from support.browser import TIMEOUT_MS, cells, statuses, tile, until, until_complete
from support.live_system import running_system
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from support.live_system import LiveSystem
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture
def system(broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path) -> Iterator[LiveSystem]:
    """A complete system on the shared broker, in which flights are produced and consumed."""
    with running_system(broker.bootstrap_servers, topic_prefix, tmp_path) as system:
        yield system


def view(page: Page, name: str) -> None:
    """Select a view."""
    page.locator(".st-key-view").get_by_role("radio", name=name).click()


def shows(page: Page, group: str, status: str) -> None:
    """Wait until the table has the group with this status."""
    wait_until(
        lambda: dict(row[:2] for row in statuses(page)).get(group) == status, TIMEOUT_MS / 1000, f"{group}: {status}"
    )


def drawn(page: Page) -> None:
    """Wait until the view is complete, with its charts."""
    page.locator('[data-testid="stVegaLiteChart"] svg').first.wait_for(timeout=TIMEOUT_MS)
    until_complete(page)


def every_view(page: Page) -> None:
    """Check that each view has values, and that they change without a reload."""
    view(page, "Metrics")
    page.locator(".st-key-metric input").click()
    page.get_by_role("option", name="flights.processed", exact=True).click()
    until(page, "Living instances", "2")
    wait_until(lambda: tile(page, "Rate, last minute").endswith("/s"), 60, "there is a rate")
    before = tile(page, "Sum of flights.processed")
    wait_until(lambda: tile(page, "Sum of flights.processed") != before, 60, "the sum grows by itself")
    drawn(page)

    view(page, "Processed twice")
    until(page, "Processed twice", "0")
    drawn(page)


def test_a_consumer_stops_and_comes_back(system: LiveSystem, serve: Callable, open_page: Callable) -> None:
    """Every view shows the running system. A stopped consumer is ERR with its reason, and OK after it has restarted.

    At the end every flight that was sent is processed, and the page's sum is the number that the consumers processed.
    """
    group = system.group
    with serve(system.store) as url:
        with open_page(url) as page:
            shows(page, group, "OK")
            for own in ("tallystream-aggregator", "tallystream-shipper"):
                shows(page, group.replace("flights", own), "OK")
            drawn(page)

            every_view(page)

            view(page, "Consumer groups")
            page.locator(".st-key-group input").click()
            page.get_by_role("option", name=group, exact=True).click()
            until(page, "Members", "2")

            system.stop()
            page.get_by_text("the group has no members").first.wait_for(timeout=TIMEOUT_MS)
            reason = page.get_by_test_id("stAlert").inner_text()
            assert re.search(
                rf"ERR .*STOP in {group}/\d .*records wait, and the committed offset has not moved for \d+ s", reason
            ), reason
            until(page, "Members", "0")
            until(page, "Catches up", "never")
            drawn(page)
            page.locator(".st-key-group input").click()
            page.get_by_role("option", name="All groups").click()
            shows(page, group, "ERR")
            assert statuses(page)[0][0] == group, "the worst is first"
            drawn(page)

            stopped = time.time()
            system.start()
            shows(page, group, "OK")
            system.producer.stop()
            view(page, "Metrics")
            wait_until(lambda: len(system.processed()) == system.producer.sent, 60, "every flight is processed")
            wait_until(
                lambda: tile(page, "Sum of flights.processed") == f"{system.processed().total():,}",
                TIMEOUT_MS / 1000,
                "the page's sum is the number of processed flights",
            )
            drawn(page)

        at = datetime.fromtimestamp(stopped, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        with open_page(f"{url}/?{urlencode({'group': group, 'range': '5m', 'at': at})}") as page:
            page.get_by_text("History at").wait_for(timeout=TIMEOUT_MS)
            page.get_by_text("the group has no members").first.wait_for(timeout=TIMEOUT_MS)
            assert tile(page, "Members") == "0"
            assert "STOP" in [row[2] for row in cells(page, "partitions-table")[1:]]
            drawn(page)
