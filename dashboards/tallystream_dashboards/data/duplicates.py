"""Records that were processed more than once: the number of records processed minus the number of offsets covered.

Consumers report in one snapshot, set together, how many records they processed and their position in each partition.
Therefore the formula is valid at any time, and records in flight are never counted. It is the formula of
docs/metrics.md and of the Grafana dashboard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream_dashboards.data import sums
from tallystream_dashboards.data.lines import Line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.lines import Period


READS = 5
"""How often counters and positions are read, at most, if the shipper writes meanwhile."""


@dataclass(frozen=True, slots=True)
class CoveredOffsets:
    """The offsets of one partition that all instances together covered: `start` <= offset < `position`."""

    topic: str
    partition: str
    start: int
    position: int

    @property
    def count(self) -> int:
        """The number of offsets covered."""
        return self.position - self.start


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The number of records processed more than once, now and over time, and its parts."""

    processed: int
    covered: int
    over_time: Line
    partitions: tuple[CoveredOffsets, ...]

    @property
    def count(self) -> int:
        """Records counted twice. It is below 0 if offsets have no record or the counter counts something else."""
        return self.processed - self.covered


def positions_of(counter: str) -> str:
    """Return the name of the positions that are set together with a counter, as ConsumerProgress names them."""
    return f"{counter}.position"


def taken_of(counter: str) -> str:
    """Return the name of the counter of what was taken before the work, as ConsumerProgress names it."""
    return f"{counter}.taken"


def without_taken(metrics: Sequence[sums.Metric]) -> list[sums.Metric]:
    """Return the metrics without what was taken before the work, which is no sum of its own but a bound of another."""
    bounds = {taken_of(one.name) for one in metrics}
    return [one for one in metrics if one.name not in bounds]


def read_duplicates(reader: PointReader, chosen: Sequence[sums.Metric], period: Period) -> Duplicates | None:
    """Return the records processed twice, by the `chosen` counters and their positions; None without either.

    Counters and positions must be those of one moment. If the counters changed while the positions were read, both are
    read again.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    counters = [metric for metric in chosen if metric.type == "counter"]
    if not counters:
        return None
    name, app = counters[0].name, counters[0].app
    for _ in range(READS):
        positions = _read(reader, positions_of(name), app, "position", period)
        if not positions:
            return None
        before, counters = counters, _read(reader, name, app, "counter", period)
        if {one.tags: one.value for one in before} == {one.tags: one.value for one in counters}:
            break
    return duplicates(counters, positions)


def _read(reader: PointReader, name: str, app: str, type_: str, period: Period) -> list[sums.Metric]:
    fields = ("count",) if type_ == "counter" else ("start", "position")
    tags = {"app": app, "metric_type": type_}
    series = reader.read(name, fields, start_ms=period.start_ms, end_ms=period.until_ms, tags=tags, last_before=True)
    return sums.metrics(series)


def duplicates(counters: Sequence[sums.Metric], positions: Sequence[sums.Metric]) -> Duplicates:
    """Return the records processed twice by the sum of these counters and these positions."""
    processed = _total("processed", [metric.value for metric in counters])
    covered = _total("covered", [metric.line("position") for metric in positions])
    start = _total("start", [metric.line("start") for metric in positions])
    times = sorted({*processed.times_ms, *covered.times_ms, *start.times_ms})
    values = [_difference(processed.at(ts), covered.at(ts), start.at(ts)) for ts in times]
    partitions = [_covered(metric) for metric in positions]
    return Duplicates(
        int(processed.last or 0),
        sum(one.count for one in partitions),
        Line("processed twice", times, values),
        tuple(sorted(partitions, key=lambda one: (one.topic, len(one.partition), one.partition))),
    )


def _total(label: str, lines: Sequence[Line]) -> Line:
    """Return the sum of the lines at each time at which one of them changes. A line counts as 0 before it begins."""
    times = sorted({ts for line in lines for ts in line.times_ms})
    return Line(label, times, [sum(line.at(ts) or 0 for line in lines) for ts in times])


def _difference(processed: float | None, covered: float | None, start: float | None) -> float | int | None:
    return None if processed is None or covered is None else processed - covered + (start or 0)


def _covered(metric: sums.Metric) -> CoveredOffsets:
    tags = dict(metric.tags)
    start, position = metric.line("start").last, metric.line("position").last
    return CoveredOffsets(tags.get("topic", ""), tags.get("partition", ""), int(start or 0), int(position or 0))
