"""The queries of docs/queries.md, run on a real InfluxDB, and a store filled for them by the shipper's own code."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from support.lag import Rounds, group, round_of
from tallystream_aggregator.shipping.points import event_point, point
from tallystream_aggregator.sums import Sum

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.sinks.base import Point
    from tallystream_aggregator.sinks.stores import StoreSettings

DOC = Path(__file__).parents[2] / "docs" / "queries.md"
BEGIN, END = "2026-11-20T10:00:00Z", "2026-11-20T11:00:00Z"
"""The moments that the page names; a test puts its own in their place."""


class Query(NamedTuple):
    """One query of the page, in both languages."""

    title: str
    flux: str
    influxql: str


def queries() -> list[Query]:
    """Return the page's queries, in order."""
    sections = re.split(r"^## \d+\. ", DOC.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    made = []
    for section in sections:
        (flux,) = re.findall(r"```flux\n(.*?)```", section, flags=re.DOTALL)
        (influxql,) = re.findall(r"```sql\n(.*?)```", section, flags=re.DOTALL)
        made.append(Query(section.partition("\n")[0], flux, influxql.replace("\n", " ")))
    return made


class Filled:
    """Ten minutes of sums, events and lag, ending a few seconds ago; `points` is all that there is to be asked for."""

    TOPICS = (("orders", "x", 50), ("orders", "y", 7), ("billing", "x", 3))
    """The series of `orders.processed`: app, topic, and how much it grows a second."""

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
                if n % 5 == 3:  # a sum that does not change makes no point
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
            if kind == "restart":
                self.restarts.append((ts_ms, f"restart: {instance}"))
            yield event_point(json.dumps(event).encode())

    def total(self, app: str, until_ms: int = 2**62) -> int:
        """What the app had processed: of each of its topics the last count before a moment."""
        return sum(
            max(count for ts_ms, count in counts if ts_ms < until_ms)
            for (of, _), counts in self.counts.items()
            if of == app
        )

    def minutes(self) -> dict[int, int]:
        """What the app `orders` processed in each minute but the first, by the minute's beginning in ms."""
        found: dict[int, int] = {}
        for (app, _), counts in self.counts.items():
            last = {ts_ms // 60_000 * 60_000: count for ts_ms, count in counts}
            for minute, count in last.items():
                if app == "orders" and minute - 60_000 in last:
                    found[minute] = found.get(minute, 0) + count - last[minute - 60_000]
        return found

    def worst(self) -> dict[int, float]:
        """The highest 99th percentile of each minute."""
        found: dict[int, float] = {}
        for ts_ms, value in self.p99:
            minute = ts_ms // 60_000 * 60_000
            found[minute] = max(found.get(minute, 0.0), value)
        return found


def _ours(text: str, store: StoreSettings, filled: Filled) -> str:
    for moment, ts_ms in ((BEGIN, filled.begin_ms), (END, filled.end_ms)):
        ours = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ts_ms / 1000)) + f".{ts_ms % 1000:03}Z"
        text = text.replace(moment, ours)
    return text.replace('bucket: "tallystream"', f'bucket: "{store.bucket}"')


def ask_flux(query: Query, store: StoreSettings, filled: Filled) -> list[dict[str, Any]]:
    """Return the rows of a Flux query's answer, by column."""
    from influxdb_client import InfluxDBClient

    with InfluxDBClient(url=store.where, token=store.token, org=store.org) as client:
        tables = client.query_api().query(_ours(query.flux, store, filled))
        return [row.values for table in tables for row in table.records]


def ask_influxql(query: Query, store: StoreSettings, filled: Filled) -> list[dict[str, Any]]:
    """Return the rows of an InfluxQL query's answer, of all its statements, by column; tags of a series are columns."""
    asked = urllib.parse.urlencode({"db": store.bucket, "q": _ours(query.influxql, store, filled), "epoch": "ms"})
    request = urllib.request.Request(f"{store.where}/query?{asked}", headers={"Authorization": f"Token {store.token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        results = json.load(answer)["results"]
    rows: list[dict[str, Any]] = []
    for result in results:
        assert "error" not in result, result
        for series in result.get("series", ()):
            tags, names = series.get("tags", {}), series["columns"]
            rows += [tags | dict(zip(names, values, strict=True)) for values in series["values"]]
    return rows


def column(rows: Iterable[dict[str, Any]], *names: str) -> list[Any]:
    """Return the values of the columns of each row: alone where there is one name."""
    picked = [tuple(row[name] for name in names) for row in rows]
    return [one[0] for one in picked] if len(names) == 1 else picked
