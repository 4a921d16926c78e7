"""The load: counters of a fleet that only grow, their records' bytes, and the sums that must come out. No Kafka here.

Update number n belongs to metric n % metrics of instance n // metrics % instances: instance by instance, each one's
metrics in turn, as reporters publish. Every step is 1 to 100, drawn from a seed: the same updates for every side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tallystream.reporter import record
from tallystream.reporter.ulid import new_ulid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

APP = "bench"
_MARK = 10**15  # no count comes near it, so its digits mark where one stands


@dataclass(frozen=True)
class Fleet:
    """`instances` of an application with `metrics` counters each: a row of the table for each of their products."""

    instances: int = 1000
    metrics: int = 50
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
        return [b"app-%d" % number for number in range(self.instances)]


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
        np.add.at(self.sums, (np.arange(first, first + n)) % self.fleet.metrics, steps)
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


class Snapshots:
    """Renders the same updates as snapshots, one life an instance: what the reporter would have published."""

    def __init__(self, fleet: Fleet, now_ms: int) -> None:
        self._fleet, self._now = fleet, now_ms
        self._lives = [new_ulid(now_ms) for _ in range(fleet.instances)]
        self._first, self._later = self._template(None), self._template(now_ms)

    def render(self, taken: Taken) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) of one record for each instance's turn; `taken` is of whole instances."""
        fleet = self._fleet
        if taken.first % fleet.metrics or len(taken.readings) % fleet.metrics:
            raise ValueError(f"{taken.first} + {len(taken.readings)} updates are not of whole instances")
        readings = taken.readings.reshape(-1, fleet.metrics).tolist()
        for turn, counts in enumerate(readings, taken.first // fleet.metrics):
            instance, seq = turn % fleet.instances, turn // fleet.instances + 1
            template = self._first if seq == 1 else self._later
            yield fleet.keys[instance], template % (self._lives[instance].encode(), seq, *counts)

    def _template(self, prev: int | None) -> bytes:
        listed: list[record.Metric] = [record.Counter(name=name, count=_MARK) for name in self._fleet.names]
        life = self._lives[0]
        snapshot = record.Snapshot(
            app=APP, life=life, part=0, seq=_MARK, prev=prev, ts=self._now, every_ms=1000, final=False, metrics=listed
        )
        # The reporter's own bytes, so that the order of the fields is its own too.
        return record.encode(snapshot).replace(life.encode(), b"%b").replace(b"%d" % _MARK, b"%d")
