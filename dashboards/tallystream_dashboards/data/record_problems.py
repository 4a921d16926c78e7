"""What is not well with sums and records: those that stopped, records that were lost and that were processed twice.

Only `tallystream alert` has them: the numbers of lost and twice never fall, so a page that had them would stay red.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.data.compare_reading import read_consumers
from tallystream_dashboards.data.problems import Problem
from tallystream_dashboards.data.stopped import read_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.grafana.settings import Thresholds


def read_record_problems(reader: PointReader, *, now_ms: int, limits: Thresholds) -> Iterator[Problem]:
    """Yield them, as far as they are certain. While the store is behind, nothing is told.

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
            what = f"{key.app}: {one.lost.at_least:,} records of {key.name} were lost"
            yield Problem(what, f"They were sent by {sender}, and never counted.", "records-lost", details=details)
        if one.twice.at_least > limits.processed_twice:
            what = f"{key.app} processed {one.twice.at_least:,} records of {key.name} more than once"
            yield Problem(what, "They were counted twice.", "processed-twice", details=details)
    for app, name, since_ms in read_stopped(reader, at_ms=as_of_ms, period_ms=limits.stopped_minutes * 60_000):
        what = f"{name} of {app} has not grown for {limits.stopped_minutes} minutes"
        why = "It grew in five such periods in a row, and its instances live."
        details = {"view": "metrics", "app": app, "metric": name}
        yield Problem(what, why, "sum-stopped", since_ms=since_ms, details=details)
