"""The queries of docs/queries.md, with other times, on a real InfluxDB with points from the shipper's code."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.lag import Rounds, group, round_of
from support.stores import Influx, influx_bucket, write
from tallystream_aggregator.shipping.points import event_point, point
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_aggregator.sums import Sum

pytestmark = pytest.mark.integration

DOC = Path(__file__).parents[2] / "docs" / "queries.md"
BEGIN, END = "2026-11-20T10:00:00Z", "2026-11-20T11:00:00Z"
"""The times in the page's queries, which the tests replace with their own."""


class Query(NamedTuple):
    """One query of the page."""

    title: str
    flux: str


def read_page() -> list[Query]:
    sections = re.split(r"^## \d+\. ", DOC.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    queries = []
    for section in sections:
        (flux,) = re.findall(r"```flux\n(.*?)```", section, flags=re.DOTALL)
        queries.append(Query(section.partition("\n")[0], flux))
    return queries


class Dataset:
    """Ten minutes of sums, events and lag up to a few seconds ago, and the expected results of the queries."""

    TOPICS = (("orders", "x", 50), ("orders", "y", 7), ("billing", "x", 3))
    """The series of `orders.processed`: app, topic, and growth in a second."""

    def __init__(self) -> None:
        self.now_ms = round(time.time()) * 1000 - 3000
        self.first_ms = (self.now_ms - 600_000) // 60_000 * 60_000
        self.begin_ms = self.first_ms + 124_500
        self.end_ms = self.first_ms + 457_500
        self.counts: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.p99: list[tuple[int, float]] = []
        self.restarts: list[tuple[int, str]] = []
        self.points: list[Point] = [*self._sums(), *self._events()]
        self.rounds = Rounds()
        for ts_ms in range(self.now_ms - 200_000, self.now_ms, 2000):
            end = 100_000 + (ts_ms - self.now_ms) // 100
            groups = round_of(
                group("billing", (end - 4000, end)), group("audit", (90_000, end), members=0), group("mail", (end, end))
            )
            self.points += self.rounds.points(groups, ts_ms)

    def _sums(self) -> Iterable[Point]:
        for app, topic, each in self.TOPICS:
            for n, ts_ms in enumerate(range(self.first_ms, self.now_ms, 1000)):
                if n % 5 == 3:  # an unchanged sum has no new point
                    continue
                count = 1000 + each * n
                self.counts.setdefault((app, topic), []).append((ts_ms, count))
                living = 3 if n < 300 else 2
                yield self._sum("counter", "orders.processed", ts_ms, app, topic, count=count, instances=living)
        for n, ts_ms in enumerate(range(self.first_ms, self.now_ms, 1000)):
            value = 0.25 + n * 37 % 101 / 128
            self.p99.append((ts_ms, value))
            yield self._sum("timer", "batch", ts_ms, "orders", "x", count=n + 1, sum=0.5 * n, p50=0.125, p99=value)

    def _sum(self, kind: str, name: str, ts_ms: int, app: str, topic: str, **values: Any) -> Point:
        return point(Sum(app=app, name=name, type=kind, tags={"topic": topic}, lives=4, ts=ts_ms, **values))

    def _events(self) -> Iterable[Point]:
        for at, kind, instance in ((100, "restart", "orders-1"), (101, "retired", "orders-1"), (250, "restart", "i 2")):
            ts_ms = self.first_ms + at * 1000
            event = {"v": 1, "kind": kind, "app": "orders", "instance": instance, "life": "L", "ts": ts_ms}
            event |= {"topic": "metrics", "partition": 0, "offset": at}
            if kind == "restart":
                self.restarts.append((ts_ms, f"restart: {instance}"))
            yield event_point(json.dumps(event).encode())

    def total(self, app: str, until_ms: int = 2**62) -> int:
        """Return what the app had processed before a time: the sum of the last counts of its topics."""
        return sum(
            max(count for ts_ms, count in counts if ts_ms < until_ms)
            for (of, _), counts in self.counts.items()
            if of == app
        )

    def minutes(self) -> dict[int, int]:
        """Return what the app `orders` processed in each minute but the first, by the start of the minute in ms."""
        found: dict[int, int] = {}
        for (app, _), counts in self.counts.items():
            last = {ts_ms // 60_000 * 60_000: count for ts_ms, count in counts}
            for minute, count in last.items():
                if app == "orders" and minute - 60_000 in last:
                    found[minute] = found.get(minute, 0) + count - last[minute - 60_000]
        return found

    def highest_p99(self) -> dict[int, float]:
        """Return the highest 99th percentile of each minute."""
        found: dict[int, float] = {}
        for ts_ms, value in self.p99:
            minute = ts_ms // 60_000 * 60_000
            found[minute] = max(found.get(minute, 0.0), value)
        return found


def with_own_times(text: str, store: StoreSettings, data: Dataset) -> str:
    for moment, ts_ms in ((BEGIN, data.begin_ms), (END, data.end_ms)):
        own = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ts_ms / 1000)) + f".{ts_ms % 1000:03}Z"
        text = text.replace(moment, own)
    return text.replace('bucket: "tallystream"', f'bucket: "{store.bucket}"')


def ask(query: Query, store: StoreSettings, data: Dataset) -> Response:
    from influxdb_client import InfluxDBClient

    with InfluxDBClient(url=store.where, token=store.token, org=store.org) as client:
        tables = client.query_api().query(with_own_times(query.flux, store, data))
        return Response([row.values for table in tables for row in table.records])


PAGE = read_page()


@pytest.fixture(scope="module")
def filled(influxdb: Influx) -> Iterator[tuple[StoreSettings, Dataset]]:
    """A bucket that has the data set, and the data set."""
    with influx_bucket(influxdb, f"queries {uuid.uuid4().hex}") as store:
        data = Dataset()
        assert write(store, data.points) == 0
        yield store, data


class Response:
    """The rows of a response."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def values(self) -> list[Any]:
        return [row["_value"] for row in self.rows]

    def by(self, *tags: str) -> dict[Any, Any]:
        """Return the values by the values of one or several tags."""
        keys = [tuple(row[tag] for tag in tags) if len(tags) > 1 else row[tags[0]] for row in self.rows]
        return dict(zip(keys, self.values(), strict=True))

    def over_time(self) -> dict[int, Any]:
        """Return the values by time, in ms."""
        times = (round(row["_time"].timestamp() * 1000) for row in self.rows)
        return dict(zip(times, self.values(), strict=True))


def _period(response: Response, data: Dataset) -> tuple[object, object]:
    first, last = (data.total("orders", moment) for moment in (data.begin_ms, data.end_ms))
    assert last - first == 333 * (50 + 7)  # seconds multiplied by the growth of two topics in a second
    return response.values(), [last - first]


def _worst(response: Response, data: Dataset) -> tuple[object, object]:
    seconds = {state.group: state.time_lag.seconds if state.time_lag else 0.0 for state in data.rounds.states}
    worst = max(seconds, key=lambda group: seconds[group])
    assert seconds[worst] > 0
    return response.by("group"), {worst: seconds[worst]}


def _statuses(response: Response, data: Dataset) -> tuple[object, object]:
    statuses = {state.group: state.evaluation.status.name for state in data.rounds.states}
    assert len(set(statuses.values())) > 1
    return response.by("group"), statuses


CHECKS: dict[str, Callable[[Response, Dataset], tuple[object, object]]] = {
    "The total now": lambda response, data: (response.values(), [data.total("orders")]),
    "The rate per minute": lambda response, data: (response.over_time(), data.minutes()),
    "Totals by app": lambda response, data: (
        response.by("app"),
        {app: data.total(app) for app in ("orders", "billing")},
    ),
    "Living instances": lambda response, data: (
        response.by("app", "topic"),
        {(app, topic): 2 for app, topic, _ in data.TOPICS},
    ),
    "Restarts, as annotations for a graph": lambda response, data: (response.over_time(), dict(data.restarts)),
    "The 99th percentile over time": lambda response, data: (response.over_time(), data.highest_p99()),
    "The total at a moment": lambda response, data: (response.values(), [data.total("orders", data.begin_ms)]),
    "What was processed in a period": _period,
    "The consumer group with the oldest unread record": _worst,
    "The status of every group now": _statuses,
}
"""Title → a function that returns what the response has, and the expected values, computed from the points."""


@pytest.mark.parametrize("query", PAGE, ids=[query.title for query in PAGE])
def test_a_query_of_the_page_is_right(query: Query, filled: tuple[StoreSettings, Dataset]) -> None:
    """The response equals the value that is computed from the points."""
    store, data = filled
    actual, expected = CHECKS[query.title](ask(query, store, data), data)
    assert actual == expected


def test_there_are_ten() -> None:
    """The page has ten queries, and each has a check."""
    assert [query.title for query in PAGE] == list(CHECKS)
    assert len(PAGE) == 10
