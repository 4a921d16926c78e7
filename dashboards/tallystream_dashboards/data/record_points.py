"""What became of the records of each consumer, as points. Neither Flux nor PromQL finds out who sent them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import Point
from tallystream_dashboards.data.compare_reading import read_consumers
from tallystream_dashboards.lag.reader import last_round_ms
from tallystream_dashboards.lag.samples import MAX_GAP_MS
from tallystream_dashboards.lag.storage import RECORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.sides import CounterKey, OfConsumer


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
