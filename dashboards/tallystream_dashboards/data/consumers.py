"""What became of the records of each consumer, as points, and what of it is not well.

Neither Flux nor PromQL finds out who sent them. Only `tallystream alert` has the problems: the numbers of lost and
twice never fall, so a page that had them would stay red.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import Point
from tallystream_dashboards.data.compare_reading import read_consumers
from tallystream_dashboards.data.problems import Problem
from tallystream_dashboards.data.stopped import read_stopped
from tallystream_dashboards.formatting import counted
from tallystream_dashboards.lag.reader import last_round_ms
from tallystream_dashboards.lag.samples import MAX_GAP_MS
from tallystream_dashboards.lag.storage import RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.sides import CounterKey, OfConsumer
    from tallystream_dashboards.grafana.settings import Thresholds


def read_record_points(reader: PointReader, at_ms: int) -> list[Point]:
    """Return a point for each consumer; none while the store is late, or no round tells whether it is.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    round_ms = last_round_ms(reader, at_ms=at_ms)
    if round_ms is None or at_ms - round_ms > MAX_GAP_MS:
        return []
    stored, consumers = read_consumers(reader, at_ms)
    return [] if stored.is_late(at_ms) else record_points(consumers, at_ms)


def record_points(consumers: Mapping[CounterKey, OfConsumer], ts_ms: int) -> list[Point]:
    """Return a point for each consumer, with the numbers that are known."""
    points = []
    for key, (_, one) in consumers.items():
        numbers = {
            "lost": one.lost.known,
            "in_flight": one.in_flight.known,
            "counted_twice": one.twice.known,
            "processed_twice_at_most": one.processed_twice.at_most,
        }
        fields = {name: number for name, number in numbers.items() if number is not None}
        if fields:
            points.append(Point(RECORDS, {"app": key.app, "metric": key.name}, fields, ts_ms))
    return points


def read_record_problems(reader: PointReader, *, now_ms: int, limits: Thresholds) -> Iterator[Problem]:
    """Yield records that were lost or processed twice, and sums that stopped, as far as that is certain.

    While the store is behind, nothing is told.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    stored, consumers = read_consumers(reader, now_ms)
    as_of_ms = stored.as_of(now_ms)
    if as_of_ms is None or stored.is_late(now_ms):
        return
    for key, (sender, one) in consumers.items():
        details = {"view": "compare", "app": key.app, "metric": key.name}
        if one.lost.at_least > limits.lost:
            what = f"{key.app} lost {counted(one.lost.at_least, 'record')} of {key.name}"
            yield Problem(what, f"Sent by {sender}, and never counted.", "records-lost", details=details)
        if one.twice.at_least > limits.processed_twice:
            what = f"{key.app} processed {counted(one.twice.at_least, 'record')} of {key.name} more than once"
            yield Problem(what, "Counted twice.", "processed-twice", details=details)
    for app, name, since_ms in read_stopped(reader, at_ms=as_of_ms, period_ms=limits.stopped_minutes * 60_000):
        what = f"{name} of {app} has not grown for {counted(limits.stopped_minutes, 'minute')}"
        why = "It grew in five such periods in a row, and its instances live."
        details = {"view": "metrics", "app": app, "metric": name}
        yield Problem(what, why, "sum-stopped", since_ms=since_ms, details=details)
