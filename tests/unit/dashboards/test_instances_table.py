"""`tallystream instances`: which instances are living, since when, and their values, from a local store."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from support.printed import NOW_MS, cells, printed
from support.stores import write
from tallystream.ulid import ulid
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.base import Field, Point
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_aggregator.sums import Sum
from tallystream_dashboards.data.instances import LIVING_MS, MIN_SILENT_MS, silent_after_ms
from tallystream_dashboards.exit_codes import UNKNOWN
from tallystream_dashboards.formatting import DASH
from tallystream_dashboards.terminal.instances import InstancesSettings

SECOND_MS, MINUTE_MS = 1_000, 60_000
HEAD = ["INSTANCE", "STATE", "SINCE", "LAST REPORT", "LIVES", "RESTARTS"]


def life(began_ms: int) -> str:
    """Return the ID of a life that began at a time."""
    return ulid(began_ms, 1)


def reports(
    instance: str, times_ms: Iterable[int], life_id: str, *, name: str = "tallystream.reporter.sent", **tags: str
) -> list[Point]:
    """Return an instance's points of a counter, which counts the reports."""
    fields: dict[str, Field] = {"life": life_id} if life_id else {}
    all_tags = {"app": "orders", "metric_type": "counter", "instance": instance, **tags}
    return [
        Point(f"instance:{name}", all_tags, {"count": count, **fields}, ts_ms)
        for count, ts_ms in enumerate(times_ms, start=1)
    ]


def every_second(first_ms: int, last_ms: int) -> range:
    """Return the times from the first to the last one."""
    return range(first_ms, last_ms + 1, SECOND_MS)


def restart(instance: str, ts_ms: int) -> Point:
    """Return the event of a restart."""
    tags = {"kind": "restart", "app": "orders", "instance": instance}
    return Point("tallystream.events", tags, {"text": f"restart: {instance}"}, ts_ms)


def fill(folder: Path, points: Iterable[Point]) -> StoreSettings:
    """Return a store with these points."""
    store = StoreSettings.parse(f"local:{folder / 'store.db'}", retention_days=0)
    assert write(store, list(points)) == 0
    return store


def orders() -> list[Point]:
    """Return an app with an instance that restarted, one that is silent, one of yesterday, and another app's."""
    began = NOW_MS - 20 * MINUTE_MS
    restarted = NOW_MS - 5 * MINUTE_MS
    return [
        *reports("orders-1", every_second(began, restarted - 9_000), life(began - 500)),
        *reports("orders-1", every_second(restarted, NOW_MS - 2_000), life(restarted - 500)),
        restart("orders-1", restarted),
        *reports("orders-2", every_second(began, NOW_MS - 40_000), life(began - 500)),
        *reports("orders-0", every_second(NOW_MS - 90_000_000, NOW_MS - 89_990_000), life(NOW_MS - 90_000_000)),
        restart("orders-2", NOW_MS - 90_000_000),
        Point("instance:tallystream.reporter.sent", {"app": "billing", "instance": "b"}, {"life": life(1)}, NOW_MS),
        Point("tallystream.reporter.sent", {"app": "orders", "metric_type": "counter"}, {"count": 9}, NOW_MS),
    ]


def test_each_instance_is_living_or_silent_since_a_time(tmp_path: Path) -> None:
    """A living one is so since its newest life began, a silent one since its last report. Silent ones come first.

    An instance that has not reported for an hour is not shown, nor is one of another app.
    """
    code, lines = printed(InstancesSettings(store=fill(tmp_path, orders()), app="orders"))
    assert code == 0
    assert [cells(line) for line in lines] == [
        HEAD,
        ["orders-2", "silent", "40 s ago", "40 s ago", "1", "0"],
        ["orders-1", "living", "5 min ago", "2 s ago", "2", "1"],
    ]


def test_an_instance_whose_last_report_was_final_has_ended(tmp_path: Path) -> None:
    """It is the last of the table, and no later time makes it silent. With a new life it is living.

    Processes that share its ID are living as long as one of them reports after that.
    """
    times = every_second(NOW_MS - 300_000, NOW_MS - 200_000)
    row = Sum(app="orders", name="tallystream.instances", type="instances", ts=NOW_MS - 9_000, instances=2)
    row.ended, row.silent = 1, 0
    points = [
        *final(reports("orders-3", times, life(1))),
        *final(reports("orders-1", times, life(2))),
        *reports("orders-1", every_second(NOW_MS - 100_000, NOW_MS - 1_000), life(3)),
        *reports("orders-2", every_second(NOW_MS - 300_000, NOW_MS), life(4)),
        *final(reports("orders-2", [one + 1 for one in times], life(5))),
        point(row),
    ]
    _, lines = printed(InstancesSettings(store=fill(tmp_path, points), app="orders"))
    assert [cells(line)[:2] for line in lines[1:-1]] == [
        ["orders-1", "living"],
        ["orders-2", "living"],
        ["orders-3", "ended"],
    ]
    assert cells(lines[3])[2:4] == ["3 min 20 s ago", "3 min 20 s ago"]
    assert lines[-1] == "orders: 2 living, 1 ended, 0 silent"


@pytest.mark.parametrize(("living", "states"), [(1, "silent living"), (2, "living living")])
def test_no_more_instances_are_living_than_in_the_table(tmp_path: Path, living: int, states: str) -> None:
    """One that died after few reports has no known interval, but the table knows it. The ones of before are silent.

    An instance that has just begun is living: the table's numbers may be older.
    """
    row = Sum(app="orders", name="tallystream.instances", type="instances", ts=NOW_MS - 30_000, instances=living)
    row.ended, row.silent = 0, 2 - living
    points = [
        *reports("orders-1", every_second(NOW_MS - 60_000, NOW_MS - 58_000), life(NOW_MS - 61_000)),
        *reports("orders-2", every_second(NOW_MS - 40_000, NOW_MS - 39_000), life(NOW_MS - 41_000)),
        point(row),
    ]
    _, lines = printed(InstancesSettings(store=fill(tmp_path, points), app="orders"))
    assert [cells(line)[1] for line in lines[1:-1]] == states.split()
    assert cells(lines[1])[0] == "orders-1"
    new = reports("orders-3", [NOW_MS - 2_000], life(NOW_MS - 3_000))
    _, lines = printed(InstancesSettings(store=fill(tmp_path, [*points, *new]), app="orders"))
    assert [cells(line)[1] for line in lines[1:-1]] == [*states.split(), "living"]


def final(points: list[Point]) -> list[Point]:
    """Return points of which the last one is of a final snapshot."""
    return [*points[:-1], replace(points[-1], fields={**points[-1].fields, "final": True})]


def test_the_period_selects_instances_lives_and_restarts(tmp_path: Path) -> None:
    """In a longer period there are more instances, in a shorter one fewer lives."""
    store = fill(tmp_path, orders())
    _, lines = printed(InstancesSettings(store=store, app="orders", range="7d"))
    assert [(cells(line)[0], cells(line)[-1]) for line in lines[1:]] == [
        ("orders-0", "0"),
        ("orders-2", "1"),
        ("orders-1", "1"),
    ]
    _, lines = printed(InstancesSettings(store=store, app="orders", range="5m"))
    assert [cells(line)[4:] for line in lines[1:]] == [["1", "0"], ["1", "1"]]


def test_the_values_of_a_metric(tmp_path: Path) -> None:
    """The lives of an instance are added up, as on the page. Instances without the metric are not shown."""
    restarted = NOW_MS - 5 * MINUTE_MS
    points = [
        *orders(),
        *reports("orders-1", every_second(restarted - 29_000, restarted - 10_000), life(1), name="done", topic="a"),
        *reports("orders-1", every_second(NOW_MS - 11_000, NOW_MS - 2_000), life(2), name="done", topic="a"),
        *reports("orders-1", every_second(NOW_MS - 4_000, NOW_MS - 2_000), life(2), name="done", topic="b"),
    ]
    store = fill(tmp_path, points)
    _, lines = printed(InstancesSettings(store=store, app="orders", metric="done"))
    assert [cells(line)[-1] for line in lines] == ["done", "topic=a: 30; topic=b: 3"]
    _, lines = printed(InstancesSettings(store=store, app="orders", metric="done", json=True))
    (found,) = map(json.loads, lines)
    assert found["values"] == [{"tags": {"topic": "a"}, "value": 30}, {"tags": {"topic": "b"}, "value": 3}]


def test_json_has_one_object_a_line(tmp_path: Path) -> None:
    """Times are epoch ms."""
    _, lines = printed(InstancesSettings(store=fill(tmp_path, orders()), app="orders", json=True))
    silent, living = map(json.loads, lines)
    assert silent == {
        "app": "orders",
        "instance": "orders-2",
        "state": "silent",
        "since_ms": NOW_MS - 40_000,
        "last_report_ms": NOW_MS - 40_000,
        "lives": 1,
        "restarts": 0,
    }
    assert (living["state"], living["since_ms"]) == ("living", NOW_MS - 5 * MINUTE_MS - 500)


def test_without_events_the_restarts_of_several_lives_are_not_known(tmp_path: Path) -> None:
    """The store has none yet: a dash is shown, and null in JSON."""
    store = fill(tmp_path, (one for one in orders() if one.measurement != "tallystream.events"))
    _, lines = printed(InstancesSettings(store=store, app="orders"))
    assert [cells(line)[-1] for line in lines[1:]] == ["0", DASH]


def test_an_app_without_instances(tmp_path: Path) -> None:
    """A sentence says what to check."""
    code, lines = printed(InstancesSettings(store=fill(tmp_path, orders()), app="other"))
    assert (code, len(lines)) == (UNKNOWN, 1)
    assert lines[0].startswith("The store has no instance of the app 'other' in the last 1h.")
    assert "--rows" in lines[0]


def test_without_an_app_the_apps_are_listed(tmp_path: Path) -> None:
    """Each has its numbers. A wrong name is answered with the ones that are like it."""
    rows = [Sum(app=app, name="tallystream.instances", type="instances", ts=NOW_MS, instances=2) for app in "ab"]
    for row in rows:
        row.ended, row.silent = 1, 0
    rows[0].app = "orders"
    store = fill(tmp_path, [*orders(), *map(point, rows)])
    code, lines = printed(InstancesSettings(store=store))
    assert (code, [cells(line) for line in lines]) == (
        0,
        [["APP", "LIVING", "ENDED", "SILENT"], ["b", "2", "1", "0"], ["orders", "2", "1", "0"]],
    )
    _, lines = printed(InstancesSettings(store=store, json=True))
    assert json.loads(lines[0]) == {"app": "b", "living": 2, "ended": 1, "silent": 0}
    code, lines = printed(InstancesSettings(store=store, app="order"))
    assert (code, lines) == (UNKNOWN, ["The store has no app 'order'. Did you mean orders?"])
    code, (line,) = printed(InstancesSettings(store=fill(tmp_path / "other", [])))
    assert (code, line.startswith("The store has no app yet.")) == (UNKNOWN, True)


@pytest.mark.parametrize(
    ("times_s", "after_ms"),
    [
        ([[0, 1, 2, 3]], MIN_SILENT_MS),
        ([[0, 10, 20, 30]], 30_000),
        ([[0, 60, 120, 600, 660]], LIVING_MS),
        ([[0, 600, 1200, 1800]], 1_800_000),
        ([[0, 50, 100, 150], [1, 51, 101, 151]], 150_000),
        ([[0, 10, 20], [25, 35]], 30_000),
        ([[0, 1, 2]], LIVING_MS),
        ([], LIVING_MS),
    ],
)
def test_silence_is_three_reporting_intervals(times_s: list[list[int]], after_ms: int) -> None:
    """The interval is the median of the gaps. It is not known with few reports, and short ones leave time to ship.

    Two living lives of one instance, or a restart, do not make the interval shorter.
    """
    assert silent_after_ms([[second * 1000 for second in life] for life in times_s]) == after_ms
