"""Ten minutes of many series: apps with 1, 20 and 60 instances, and any number of consumer groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from support.history import counter_point
from support.lag import Rounds, group, round_of
from tallystream_aggregator.sinks.base import Point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.sinks.base import Sink

APPS = {"app-1": 1, "app-20": 20, "app-60": 60}
"""app → the number of its instances"""
PERIOD_S, STEP_S = 600, 20


def write_many_series(sink: Sink, *, groups: int) -> int:
    """Write the apps and `groups` groups, and return the time of the last point, epoch ms."""
    rounds, last_ms = Rounds(), round(time.time()) * 1000 - 2000
    points: list[Point] = []
    for seconds in range(0, PERIOD_S + 1, STEP_S):
        ts_ms = last_ms - (PERIOD_S - seconds) * 1000
        end = 1_000_000 + seconds * 100
        # Every group falls behind at its own rate, and then reads a part of its lag.
        lags = ((n + 1) * (40 + (seconds + 70 * n) % 300) for n in range(groups))
        listed = (group(f"consumer-group-{n}", (end - lag, end), topic=f"t{n}") for n, lag in enumerate(lags))
        points += rounds.points(round_of(*listed), ts_ms)
        for app, instances in APPS.items():
            points += _counts(app, instances, seconds, ts_ms)
    sink.write(points)
    return last_ms


def _counts(app: str, instances: int, seconds: int, ts_ms: int) -> Iterator[Point]:
    counts = [seconds * (50 + number * 37 % 61) + number * 40 for number in range(instances)]
    yield counter_point(sum(counts), ts_ms, app=app, instances=instances)
    # Rows are written less often than sums, so their lines begin later and end earlier.
    if seconds % 60 != 40:
        return
    tags = {"app": app, "metric_type": "counter", "topic": "orders"}
    for number, count in enumerate(counts):
        name = f"ingest-worker-{number}.eu-central-1.example"
        yield Point("instance:records.processed", tags | {"instance": name}, {"count": count}, ts_ms)
