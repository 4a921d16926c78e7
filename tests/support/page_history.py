"""Ten minutes of history in a store: groups that are OK, slow, stopped and gone, sums, instances, a restart."""

from __future__ import annotations

import time

from support.lag import Rounds, group, round_of
from tallystream_aggregator.sinks.base import Point, Sink


def counter_point(
    count: int, ts_ms: int, *, instances: int = 2, app: str = "orders", name: str = "records.processed"
) -> Point:
    fields = {"count": count, "lives": instances + 1, "instances": instances, "retired": 0}
    return Point(name, {"app": app, "metric_type": "counter", "topic": "orders"}, fields, ts_ms)


class History:
    """Ten minutes of history, and rounds after it.

    The lag of `billing` grows slowly, and one of its partitions has no commit. `audit` stopped two minutes ago. `old`
    was deleted five minutes ago. The aggregator has a lag of 17 records. The app `orders` has counted 1,500 records of
    the app `shop` twice, and was killed with 225.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.rounds = Rounds()
        now = round(time.time()) * 1000
        self.last_ms = now - 2000
        points: list[Point] = []
        for ago in range(600, 0, -2):
            points += self.points(now - ago * 1000, ago)
            if ago % 60 == 0:
                points += instances(now - ago * 1000, 600 - ago)
        sink.write(points)

    def round(self) -> None:
        """Write a round of now."""
        self.sink.write(self.points(round(time.time() * 1000), 0))

    def points(self, ts: int, ago: int) -> list[Point]:
        """Return the points of a round `ago` seconds ago."""
        end = 100_000 - ago * 20
        billing = end - (4321 - ago * 2)
        groups = [
            group("billing", (billing, end), (None, 10)),
            group("audit", (min(end, 100_000 - 120 * 20), end), members=0),
            group("tallystream-aggregator", (end - 17 - ago // 30 % 2, end), topic="metrics", members=0),
            group("tallystream-shipper", (end, end), topic="metrics-agg", members=0),
        ]
        if ago > 300:
            groups.append(group("old", (5, 12), topic="old"))
        queue = {"sum": 7.5, "number": 2, "instances": 2, "lives": 2}
        return [
            *self.rounds.points(round_of(*groups), ts),
            *compared(1_234_567 - ago * 1000, ts, instances=1 if ago > 300 else 2),
            Point("queue.length", {"app": "orders", "metric_type": "gauge"}, queue, ts),
        ]


def compared(processed: int, ts: int, *, instances: int) -> list[Point]:
    """Return the points of what was sent, of what was processed, of which 1,500 twice, and of what was taken."""
    points = []
    for app, name, count, end in (
        ("orders", "records.processed", processed, processed - 1_500),
        ("orders", "records.processed.taken", processed + 225, processed - 1_500),
        ("shop", "orders.sent", processed + 2_500, processed + 2_500),
    ):
        tags = {"app": app, "metric_type": "position", "topic": "orders", "partition": "0"}
        fields = {"start": 0, "position": end, "instances": 2, "lives": 2, "retired": 0}
        points.append(counter_point(count, ts, instances=instances, app=app, name=name))
        points.append(Point(f"{name}.position", tags, fields, ts))
    return points


def instances(ts: int, seconds: int) -> list[Point]:
    """Return the points of two instances, the second of which restarted after 400 s."""
    tags = {"app": "orders", "metric_type": "counter", "topic": "orders"}
    counts = {"orders-1": seconds * 600, "orders-2": max(0, seconds - 400 if seconds >= 400 else seconds) * 400}
    lives = {"orders-1": "a", "orders-2": "b" if seconds < 400 else "c"}
    points = [
        Point("instance:records.processed", tags | {"instance": name}, {"count": count, "life": lives[name]}, ts)
        for name, count in counts.items()
    ]
    timer = {"count": 100 + seconds, "sum": (100 + seconds) / 80, "instances": 2, "lives": 2, "retired": 0}
    timer |= {"p50": 0.009, "p95": 0.04, "p99": 0.12}
    points.append(Point("batch", {"app": "orders", "metric_type": "timer"}, timer, ts))
    points.append(counter_point(55, ts, app="billing", name="invoices"))
    if seconds == 420:
        event = {"kind": "restart", "app": "orders", "instance": "orders-2"}
        points.append(Point("tallystream.events", event, {"text": "restart: orders-2"}, ts))
    return points
