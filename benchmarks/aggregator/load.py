"""The load: counts of a fleet that only grow, their records' bytes, and the sums that must come out. No Kafka here.

Update number n belongs to metric n % metrics of instance n // metrics % instances: instance by instance, each one's
metrics in turn, as reporters publish. Every step is 1 to 100, drawn from a seed: the same updates for every side. A
histogram takes ten values at each step.
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
"""Values that a histogram takes at each step."""
_MARK, _MARK_OF_HISTOGRAM = 10**15, 10**15 + 1  # no count comes near them, so their digits mark where one stands


@dataclass(frozen=True)
class Fleet:
    """`instances` of an application with `metrics` each: a row of the table for each of their products.

    The last `histograms` of the metrics are histograms, the others counters. An instance's ID is `prefix` and a number.
    """

    instances: int = 1000
    metrics: int = 50
    histograms: int = 0
    prefix: str = "app-"
    seed: int = 42

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.instances * self.metrics

    @cached_property
    def names(self) -> list[str]:
        """The metrics' names."""
        return [f"records.processed.{number:02d}" for number in range(self.metrics)]

    @cached_property
    def keys(self) -> list[bytes]:
        """The instances' IDs, the records' keys."""
        return [b"%b%d" % (self.prefix.encode(), number) for number in range(self.instances)]


class Taken(NamedTuple):
    """Consecutive updates, the first of them number `first`: by how much each counter grew, and what it read then."""

    first: int
    steps: NDArray[np.int64]
    readings: NDArray[np.int64]


class Updates:
    """The updates of a fleet in their order. `sums` is, by metric, what all updates taken so far add up to."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.sums = np.zeros(fleet.metrics, np.int64)
        self._counters = np.zeros(fleet.rows, np.int64)
        self._random = np.random.default_rng(fleet.seed)
        self._taken = 0

    def take(self, n: int) -> Taken:
        """Return the next `n` updates."""
        first, rows = self._taken, self.fleet.rows
        steps = self._random.integers(1, 101, n, dtype=np.int64)
        metric = np.arange(first, first + n) % self.fleet.metrics
        steps[metric >= self.fleet.metrics - self.fleet.histograms] *= VALUES
        readings = np.empty(n, np.int64)
        at = 0
        while at < n:  # in one turn over the fleet each counter comes once
            begin = self._taken % rows
            many = min(rows - begin, n - at)
            counters = self._counters[begin : begin + many]
            counters += steps[at : at + many]
            readings[at : at + many] = counters
            at += many
            self._taken += many
        np.add.at(self.sums, metric, steps)
        return Taken(first, steps, readings)

    def turns(self, n: int) -> Iterator[Taken]:
        """Take the next `n` updates in pieces that a machine's memory holds, each of whole turns but for the last."""
        piece = self.fleet.rows * max(1, 500_000 // self.fleet.rows)
        while n > 0:
            yield self.take(min(piece, n))
            n -= piece


def heads(fleet: Fleet) -> list[bytes]:
    """Return, by metric, a single-metric record up to its value."""
    return [b'{"name":"%s","type":"counter","value":' % name.encode() for name in fleet.names]


def singles(fleet: Fleet, taken: Taken, ts_ms: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of one record an update: the short form, with a type and the producer's time beside it.

    The time is `ts_ms` at update 0, and a millisecond later with each instance.
    """
    beginnings, metrics, keys = heads(fleet), fleet.metrics, fleet.keys
    for number, reading in enumerate(taken.readings.tolist(), taken.first):
        turn, metric = divmod(number, metrics)
        yield keys[turn % fleet.instances], b'%b%d,"ts":%d}' % (beginnings[metric], reading, ts_ms + turn)


class Latencies:
    """A series of latencies, drawn from a seed, as a histogram of the reporter has counted them."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._sketch, self._found = Sketch(), dict[int, bytes]()
        self._count, self._sum, self._min, self._max = 0, 0.0, np.inf, 0.0

    def after(self, count: int) -> bytes:
        """Return a histogram of the first `count` values, from its count on, as a record has it, without its name."""
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
    """Renders the same updates as snapshots, one life an instance: what the reporter would have published.

    The lives begin at `now_ms`, and say that a report comes every `every_ms`.
    """

    def __init__(self, fleet: Fleet, now_ms: int, every_ms: int = 1000) -> None:
        self._fleet, self._now, self._every_ms = fleet, now_ms, every_ms
        self._lives = [new_ulid(now_ms).encode() for _ in range(fleet.instances)]
        self._latencies = Latencies(fleet.seed)
        self._first, self._later = self._template(None), self._template(now_ms)

    def render(self, taken: Taken) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) of one record for each instance's turn; `taken` is of whole instances."""
        fleet = self._fleet
        if taken.first % fleet.metrics or len(taken.readings) % fleet.metrics:
            raise ValueError(f"{taken.first} + {len(taken.readings)} updates are not of whole instances")
        readings = taken.readings.reshape(-1, fleet.metrics).tolist()
        counters, histogram = fleet.metrics - fleet.histograms, self._latencies.after
        for turn, counts in enumerate(readings, taken.first // fleet.metrics):
            instance, seq = turn % fleet.instances, turn // fleet.instances + 1
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
        # The reporter's own bytes, so that the order of the fields is its own too.
        text = record.encode(snapshot).replace(life.encode(), b"%b")
        return text.replace(b"%d" % _MARK_OF_HISTOGRAM, b"%b").replace(b"%d" % _MARK, b"%d")
