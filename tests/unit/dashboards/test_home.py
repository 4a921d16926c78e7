"""The first view, each app in a line; and what became of the records of each consumer, as the collector writes it."""

from __future__ import annotations

import pytest

from support.lag import Rounds, group, round_of
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_dashboards.data.consumers import read_record_points
from tallystream_dashboards.data.home import Home, read_home
from tallystream_dashboards.data.observed import AppInstances
from tallystream_dashboards.formatting import DASH
from tallystream_dashboards.page import tables
from tallystream_dashboards.page.html_table import Anchor
from tallystream_dashboards.page.url_state import Selection

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


def test_an_app_that_began_a_moment_ago_has_a_rate(store: LocalStore, reader: LocalStore) -> None:
    """It is that since the first point."""
    points = [sum_point("sent", "counter", ago_s, count=(30 - ago_s) * 4) for ago_s in (30, 20, 10, 2)]
    (line,) = tables.apps(home(store, reader, *points), Selection())
    assert line["Rate/s"] == "3.7"  # 112 in 30 s


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
    assert (orders.lag, payments.lag) == (7, None)


def progress(
    app: str, name: str, count: int, *, start: int = 500, end: int = 1500, topic: str = "in", ago_s: int = 0
) -> list[Point]:
    """Return the points of a counter and of its position."""
    where = {"topic": topic, "partition": "0"}
    position = sum_point(f"{name}.position", "position", ago_s, app, start=start, position=end, **where)
    return [sum_point(name, "counter", ago_s, app, count=count), position]


def lost_and_twice(found: Home) -> dict[str, tuple[str | None, str | None]]:
    return {row["App"].text: (row["Lost"], row["Twice"]) for row in tables.apps(found, Selection())}


def test_lost_and_twice_are_known_within_bounds(store: LocalStore, reader: LocalStore) -> None:
    """A consumer that was killed with 225 records is compared with what was sent to its topics. A producer is not."""
    points = [*progress("billing", "n", 1000), *progress("billing", "n.taken", 1225)]
    found = home(store, reader, *points)
    assert lost_and_twice(found) == {"billing": (DASH, "0 to 225?")}
    assert found.apps[0].main is not None
    assert found.apps[0].main.name == "n"
    found = home(store, reader, *progress("orders", "sent", 1100, start=400))
    assert lost_and_twice(found) == {"billing": ("100", "0 to 225"), "orders": (None, None)}


def test_without_what_was_taken_only_what_was_counted_twice_is_known(store: LocalStore, reader: LocalStore) -> None:
    """It is a lower bound. Of a counter that counts nothing twice, nothing is known."""
    found = home(
        store, reader, *progress("a", "n", 1003), *progress("b", "n", 1000), sum_point("n", "counter", 0, "c", count=1)
    )
    assert lost_and_twice(found) == {"a": (DASH, "≥ 3"), "b": (DASH, DASH), "c": (None, None)}


def test_lost_and_twice_are_of_the_moment_up_to_which_the_store_has_everything(
    store: LocalStore, reader: LocalStore
) -> None:
    """The counters of the newest step may be there without their positions."""
    rounds = Rounds()
    for ago_s in (6, 4, 2):
        own = [group(f"tallystream-{name}", (9, 9), topic=name) for name in ("aggregator", "shipper")]
        store.write(rounds.points(round_of(*own), NOW - ago_s * 1000))
    store.write(progress("a", "n", 1003, ago_s=5))
    found = home(store, reader, sum_point("n", "counter", 0, "a", count=5000))
    assert lost_and_twice(found) == {"a": (DASH, "≥ 3")}
    assert found.apps[0].main is not None
    assert found.apps[0].main.value.last == 5000


@pytest.mark.parametrize(
    ("other", "numbers"),
    [
        (progress("b", "sent", 1100, start=400), (DASH, "0?")),
        (progress("b", "sent", 1100, start=400, topic="out"), ("100", "0")),
        (progress("b", "n", 1000) + progress("b", "n.taken", 1000), ("100", "0")),
        (progress("b", "n", 1101, start=400), ("100", "0")),
    ],
    ids=["producer", "other-topic", "consumer", "counts-twice"],
)
def test_what_was_sent_is_known_if_one_counter_can_be_it(
    store: LocalStore, reader: LocalStore, other: list[Point], numbers: tuple[str, str]
) -> None:
    """A second producer makes it unknown; a consumer, another topic and what was counted twice are no producers."""
    consumer = [*progress("billing", "n", 1000), *progress("billing", "n.taken", 1000)]
    found = home(store, reader, *consumer, *progress("orders", "sent", 1100, start=400), *other)
    assert lost_and_twice(found)["billing"] == numbers


def round_points(shipped: int = 9, ago_ms: int = 2_000) -> list[Point]:
    """Return the points of a round of the collector, in which the shipper had committed so much of 9 rows."""
    aggregator = group("tallystream-aggregator", (9, 9), topic="metrics")
    shipper = group("tallystream-shipper", (shipped, 9), topic="metrics-agg")
    return Rounds().points(round_of(aggregator, shipper), NOW - ago_ms)


def test_each_consumer_has_a_point_with_the_numbers_that_are_known(store: LocalStore, reader: LocalStore) -> None:
    """What was lost and is in flight is known if it is known who sent it. A consumer of which nothing is has no point.

    The numbers are the lower bounds of `compare`, and the upper one of what was processed twice.
    """
    store.write(round_points())
    store.write(progress("orders", "sent", 1000, start=0, end=1000, ago_s=60))
    for name, count in (("n", 900), ("n.taken", 925)):
        store.write(progress("billing", name, count, start=90, end=990, ago_s=60))
    store.write(progress("audit", "n", 1003, topic="other", ago_s=60))
    store.write(progress("idle", "n", 7, end=509, topic="third", ago_s=60))
    assert read_record_points(reader, NOW) == [
        Point("tallystream.records", {"app": "audit", "metric": "n"}, {"counted_twice": 3}, NOW),
        Point(
            "tallystream.records",
            {"app": "billing", "metric": "n"},
            {"lost": 90, "in_flight": 10, "counted_twice": 0, "processed_twice_at_most": 25},
            NOW,
        ),
    ]


@pytest.mark.parametrize(
    "points",
    [
        pytest.param([], id="no round"),
        pytest.param(round_points(ago_ms=100_000), id="no round for too long"),
        pytest.param([*round_points(ago_ms=200_000), *round_points(shipped=5)], id="a late shipper"),
    ],
)
def test_while_the_store_may_be_late_there_are_no_points(
    store: LocalStore, reader: LocalStore, points: list[Point]
) -> None:
    """Counts may be in the store without their positions."""
    store.write([*progress("audit", "n", 1003, ago_s=60), *points])
    assert read_record_points(reader, NOW) == []
