"""The first view: each app in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.lag import Rounds, group, round_of
from tallystream_aggregator.sinks.base import Point
from tallystream_dashboards.data.home import read_home
from tallystream_dashboards.data.observed import AppInstances
from tallystream_dashboards.page import tables
from tallystream_dashboards.page.html_table import Anchor
from tallystream_dashboards.page.url_state import Selection

if TYPE_CHECKING:
    from tallystream_aggregator.sinks.sqlite.sink import LocalStore
    from tallystream_dashboards.data.home import Home

NOW = 1_700_000_000_000
PERIOD = Selection().period(NOW)
LIVING = {"instances": 2, "lives": 2, "retired": 0}


def sum_point(name: str, type_: str, ago_s: int, app: str = "orders", /, **values: object) -> Point:
    """Return the point of a sum some seconds ago. Values that are text are tags."""
    tags = {key: value for key, value in values.items() if isinstance(value, str)}
    fields = {key: value for key, value in values.items() if isinstance(value, int | float)}
    return Point(name, {"app": app, "metric_type": type_, **tags}, {**fields, **LIVING}, NOW - ago_s * 1000)


def home(store: LocalStore, reader: LocalStore, *points: Point, apps: tuple[AppInstances, ...] = ()) -> Home:
    store.write(points)
    return read_home(reader, apps, PERIOD, round_ms=NOW)


def test_the_fastest_counter_stands_for_an_app(store: LocalStore, reader: LocalStore) -> None:
    """It is the total over tags, with its rate. The reporter's own metrics, gauges and timers stand behind."""
    found = home(
        store,
        reader,
        sum_point("sent", "counter", 60, count=0, topic="a"),
        sum_point("sent", "counter", 0, count=120, topic="a"),
        sum_point("sent", "counter", 60, count=1_000, topic="b"),
        sum_point("slow", "counter", 60, count=9_000_000),
        sum_point("batch", "timer", 60, count=0, sum=0.0),
        sum_point("batch", "timer", 0, count=6_000, sum=1.0),
        sum_point("tallystream.reporter.sent", "counter", 60, count=0),
        sum_point("tallystream.reporter.sent", "counter", 0, count=6_000),
        sum_point("tallystream.table.rows", "counter", 0, "tallystream", count=6_000),
        apps=(AppInstances("orders", 2, ended=1), AppInstances("silent", 0, silent=1)),
    )
    first, second = tables.apps(found, Selection())
    assert first["App"] == Anchor("orders", "?view=metrics&app=orders&range=15m")
    assert (first["Living"], first["Main sum"], first["Sum"], first["Rate/s"]) == (2, "sent total of 2", "1,120", "2")
    assert first["Trend"][-1] == 2
    assert (first["Ended"], first["Silent"], second["Ended"], second["Silent"]) == (1, 0, 0, 1)
    assert (second["App"].text, second["Living"], second["Main sum"]) == ("silent", 0, "")


def test_the_slowest_timer_is_named(store: LocalStore, reader: LocalStore) -> None:
    """The p99 is that of the timer with the highest one."""
    timers = [
        sum_point(name, "timer", 0, count=1, sum=0.1, p50=0.1, p95=0.1, p99=p99)
        for name, p99 in (("a", 0.2), ("b", 1.5))
    ]
    (line,) = tables.apps(home(store, reader, *timers), Selection())
    assert line["p99"] == "1.5 s b"


def test_the_lag_is_that_on_the_topics_of_the_positions(store: LocalStore, reader: LocalStore) -> None:
    """Of the groups that read the app's topics, the one that is furthest behind counts. Others do not."""
    store.write(
        Rounds().points(
            round_of(
                group("billing", (10, 17), topic="orders"),
                group("audit", (12, 17), topic="orders"),
                group("other", (0, 900), topic="other"),
            ),
            NOW,
        )
    )
    position = sum_point("n.position", "position", 0, topic="orders", partition="0", start=0, position=10)
    orders, payments = home(
        store,
        reader,
        position,
        sum_point("n", "counter", 0, count=13),
        sum_point("n", "counter", 0, "payments", count=1),
    ).apps
    assert (orders.lag, orders.twice) == (7, 3)
    assert (payments.lag, payments.twice) == (None, None)


def test_what_was_taken_is_no_sum_of_its_own(store: LocalStore, reader: LocalStore) -> None:
    """Records that were taken again are not added to those counted twice, and what was taken is not the main sum."""
    where = {"topic": "orders", "partition": "0"}
    (line,) = home(
        store,
        reader,
        sum_point("n", "counter", 0, count=13),
        sum_point("n.position", "position", 0, start=0, position=10, **where),
        sum_point("n.taken", "counter", 0, count=20),
        sum_point("n.taken.position", "position", 0, start=0, position=10, **where),
    ).apps
    assert (line.twice, line.main.name if line.main else "") == (3, "n")
