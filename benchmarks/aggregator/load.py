"""The load: the growing counts of a fleet, the bytes of the records, and the expected sums. It needs no Kafka.

Update number n belongs to metric n % metrics of instance n // metrics % instances: one instance after the other, and
all metrics of each, as reporters publish. A counter grows by 1 to 100 in each update. The seed is fixed, so every side
gets the same updates. A histogram gets ten values for each step of a counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from tallystream import record
from tallystream.metrics.sketch import Sketch
from tallystream.ulid import new_ulid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

APP = "bench"
VALUES = 10
"""Values that a histogram gets for each step of a counter."""
# Far above any count: their digits mark the place of a count in a template.
_MARK, _MARK_OF_HISTOGRAM = 10**15, 10**15 + 1


@dataclass(frozen=True)
class Fleet:
    """`instances` of an application with `metrics` each. The table has one row for each metric of each instance.

    The last `histograms` of the metrics are histograms, the others counters. The ID of an instance is `prefix` and a
    number.
    """

    instances: int = 1000
    metrics: int = 50
    histograms: int = 0
    prefix: str = "app-"
    seed: int = 42

    @property
    def rows(self) -> int:
        """The number of rows in the table."""
        return self.instances * self.metrics

    @cached_property
    def names(self) -> list[str]:
        """The names of the metrics."""
        return [f"records.processed.{number:02d}" for number in range(self.metrics)]

    @cached_property
    def keys(self) -> list[bytes]:
        """The IDs of the instances, which are the keys of the records."""
        return [b"%b%d" % (self.prefix.encode(), number) for number in range(self.instances)]


class UpdateSlice(NamedTuple):
    """Consecutive updates, of which the first has number `first`: the step and the new count of each counter."""

    first: int
    steps: NDArray[np.int64]
    readings: NDArray[np.int64]


class Updates:
    """The updates of a fleet in order. `sums` has the sum of all updates that were returned, by metric."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.sums = np.zeros(fleet.metrics, np.int64)
        self._counters = np.zeros(fleet.rows, np.int64)
        self._random = np.random.default_rng(fleet.seed)
        self._position = 0

    def take(self, n: int) -> UpdateSlice:
        """Return the next `n` updates."""
        first, rows = self._position, self.fleet.rows
        steps = self._random.integers(1, 101, n, dtype=np.int64)
        metric = np.arange(first, first + n) % self.fleet.metrics
        steps[metric >= self.fleet.metrics - self.fleet.histograms] *= VALUES
        readings = np.empty(n, np.int64)
        at = 0
        while at < n:  # each counter comes once in a round over the fleet
            begin = self._position % rows
            many = min(rows - begin, n - at)
            counters = self._counters[begin : begin + many]
            counters += steps[at : at + many]
            readings[at : at + many] = counters
            at += many
            self._position += many
        np.add.at(self.sums, metric, steps)
        return UpdateSlice(first, steps, readings)

    def pieces(self, n: int) -> Iterator[UpdateSlice]:
        """Return the next `n` updates in pieces that fit into memory. All but the last are complete rounds."""
        size = self.fleet.rows * max(1, 500_000 // self.fleet.rows)
        while n > 0:
            yield self.take(min(size, n))
            n -= size


def value_prefixes(fleet: Fleet) -> list[bytes]:
    """Return the part of a single-metric record before its value, for each metric."""
    return [b'{"name":"%s","type":"counter","value":' % name.encode() for name in fleet.names]


def singles(fleet: Fleet, updates: UpdateSlice, ts_ms: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of one record for each update: the short form, with the type and the time of the producer.

    The time is `ts_ms` for the first instance, and one millisecond later for each following one.
    """
    prefixes, metrics, keys = value_prefixes(fleet), fleet.metrics, fleet.keys
    for number, reading in enumerate(updates.readings.tolist(), updates.first):
        report, metric = divmod(number, metrics)
        yield keys[report % fleet.instances], b'%b%d,"ts":%d}' % (prefixes[metric], reading, ts_ms + report)


class Latencies:
    """Random latencies from a fixed seed, and the histogram of the reporter for any number of them."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._sketch, self._found = Sketch(), dict[int, bytes]()
        self._count, self._sum, self._min, self._max = 0, 0.0, np.inf, 0.0

    def after(self, count: int) -> bytes:
        """Return the JSON of a histogram of the first `count` values, from its count on and without its name."""
        while self._count < count:
            values = self._random.lognormal(-3.0, 1.0, VALUES)
            self._sketch.add(values.tolist())
            self._count += VALUES
            self._sum += float(values.sum())
            self._min, self._max = min(self._min, float(values.min())), max(self._max, float(values.max()))
            found = record.Histogram(
                name="",
                count=self._count,
                sum=self._sum,
                min=self._min,
                max=self._max,
                sketch=self._sketch.encode(),
            )
            self._found[self._count] = msgspec.json.encode(found).partition(b'"count":')[2].removesuffix(b',"name":""}')
        return self._found[count]


class Snapshots:
    """Renders updates as the snapshots that the reporter would publish, with one life for each instance.

    The lives begin at `now_ms`, and their reporting interval is `every_ms`.
    """

    def __init__(self, fleet: Fleet, now_ms: int, every_ms: int = 1000) -> None:
        self._fleet, self._now, self._every_ms = fleet, now_ms, every_ms
        self._lives = [new_ulid(now_ms).encode() for _ in range(fleet.instances)]
        self._latencies = Latencies(fleet.seed)
        self._first, self._later = self._template(None), self._template(now_ms)

    def render(self, updates: UpdateSlice) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) of one record for each report of an instance.

        Raises:
            ValueError: the updates do not have all metrics of each instance.
        """
        fleet = self._fleet
        if updates.first % fleet.metrics or len(updates.readings) % fleet.metrics:
            raise ValueError(f"{updates.first} + {len(updates.readings)} updates are not of whole instances")
        readings = updates.readings.reshape(-1, fleet.metrics).tolist()
        counters, histogram = fleet.metrics - fleet.histograms, self._latencies.after
        for report, counts in enumerate(readings, updates.first // fleet.metrics):
            instance, seq = report % fleet.instances, report // fleet.instances + 1
            template = self._first if seq == 1 else self._later
            sketched = map(histogram, counts[counters:])
            yield fleet.keys[instance], template % (self._lives[instance], seq, *counts[:counters], *sketched)

    def _template(self, prev: int | None) -> bytes:
        fleet, life = self._fleet, self._lives[0].decode()
        counters = fleet.metrics - fleet.histograms
        listed: list[record.Metric] = [record.Counter(name=name, count=_MARK) for name in fleet.names[:counters]]
        listed += [record.Histogram(name=name, count=_MARK_OF_HISTOGRAM) for name in fleet.names[counters:]]
        snapshot = record.Snapshot(
            app=APP,
            life=life,
            part=0,
            seq=_MARK,
            prev=prev,
            ts=self._now,
            every_ms=self._every_ms,
            final=False,
            metrics=listed,
        )
        # The reporter encodes it, so that the fields have the reporter's order.
        text = record.encode(snapshot).replace(life.encode(), b"%b")
        return text.replace(b"%d" % _MARK_OF_HISTOGRAM, b"%b").replace(b"%d" % _MARK, b"%d")
