"""What is in the store: choose the points of a round, buffer them during an outage, downsample old history."""

from __future__ import annotations

import logging
import re
from collections import deque
from math import isclose
from typing import TYPE_CHECKING, NamedTuple

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_dashboards.lag.storage import (
    ALL,
    LAG,
    ROUNDS,
    SLOT_MS,
    ends_point,
    group_point,
    partition_point,
)
from tallystream_dashboards.lag.time_lag import TimeLag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tallystream_aggregator.sinks.base import Field, PointReader, Sink, Store
    from tallystream_dashboards.lag.collector.tracker import Round
    from tallystream_dashboards.lag.state import GroupState

log = logging.getLogger(__name__)

REPEAT_MS = 30_000
"""An unchanged point is written again after this time, in ms, so that a longer gap means that nothing was read."""
IGNORED = frozenset({"reason", "seen_ms"})
"""Fields whose change alone is not written, such as the numbers of a reason, which has seconds."""
_NUMBERS = re.compile(r"[\d.,]+")
IGNORED_OF_PARTITIONS = IGNORED | {"produced", "consumed"}
"""The same for a partition, whose rates change for as long as the window after its last record."""


class _Last(NamedTuple):
    """The newest point of a series. `written_ms` is the time of the newest one that was written."""

    names: tuple[str, ...]
    values: tuple[Field, ...]
    ts_ms: int
    written_ms: int

    def equals(self, later: _Last, ignored: frozenset[str]) -> bool:
        """Return whether a later point has the same fields, and an age that has only grown with time."""
        if self.names is not later.names:
            return False
        for name, one, other in zip(self.names, self.values, later.values, strict=True):
            if name == "seconds":
                if not self._is_later(one, other, later.ts_ms):
                    return False
            elif one != other and (name not in ignored or (name == "reason" and _words(one) != _words(other))):
                return False
        return True

    def _is_later(self, age_s: Field, later_s: Field, ts_ms: int) -> bool:
        """Return whether `later_s` is what a reader computes of the age."""
        expected = TimeLag(float(age_s)).after((ts_ms - self.ts_ms) / 1000)
        return isclose(expected.seconds, float(later_s), abs_tol=0.001)


def _words(reason: Field) -> str:
    """Return a reason without its numbers."""
    return _NUMBERS.sub("", str(reason))


class Recorder:
    """Chooses which points of each series are written. Not thread-safe."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], _Last] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._slot = -1

    def points(self, result: Round) -> list[Point]:
        """Return the points to write for a round.

        If a series changes, the result includes its last point before the change.
        """
        slot = result.ts_ms // SLOT_MS
        first_of_slot = slot != self._slot
        repeat_ms = 0 if first_of_slot else REPEAT_MS
        self._slot = slot
        before, self._last = self._last, {}
        points: list[Point] = []

        def add(point: Point) -> None:
            """Add a point if its series has changed, or `repeat_ms` after the last one."""
            key = (point.measurement, *point.tags.values())
            names, values = tuple(point.fields), tuple(point.fields.values())
            names = self._names.setdefault(names, names)  # one tuple for all series
            last, newest = before.get(key), _Last(names, values, point.ts_ms, point.ts_ms)
            ignored = IGNORED_OF_PARTITIONS if point.measurement == LAG else IGNORED
            if last is not None and last.equals(newest, ignored):
                if point.ts_ms - last.written_ms < repeat_ms:
                    newest = newest._replace(written_ms=last.written_ms)
            elif last is not None and last.ts_ms != last.written_ms:
                fields = dict(zip(last.names, last.values, strict=True))
                points.append(Point(point.measurement, point.tags, fields, last.ts_ms))
            if newest.written_ms == point.ts_ms:
                points.append(point)
            self._last[key] = newest

        for state in result.states:
            for point in _points(state, result.ts_ms):
                add(point)
        for partition, bounds in result.bounds.items():
            add(ends_point(partition, bounds, result.ts_ms))
        for point in result.records:
            add(point)
        points.append(_round_point(result))
        return points


def _round_point(result: Round) -> Point:
    present = [state for state in result.states if not state.gone]
    fields: dict[str, Field] = {
        "groups": len(present),
        "partitions": sum(state.partition_count for state in present),
        "took_s": float(result.took_s),
    }
    if result.problems:
        fields["problems"] = "; ".join(result.problems)
    return Point(ROUNDS, {}, fields, result.ts_ms)


def _points(state: GroupState, ts_ms: int) -> Iterable[Point]:
    yield from (partition_point(state.group, one, ts_ms) for one in state.partitions)
    yield group_point(state, ts_ms)


MAX_BUFFERED = 200_000
"""How many points are buffered while the store is unavailable: about 10 minutes for 600 partitions every 2 s."""


class WriteBuffer:
    """The points of rounds that are not yet written. Above `limit` points the oldest rounds are dropped and counted."""

    def __init__(self, limit: int = MAX_BUFFERED) -> None:
        self._rounds: deque[list[Point]] = deque()
        self._limit = limit
        self._count = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def add(self, points: list[Point]) -> None:
        """Add one round's points, the last of which has its time. The newest round is never dropped."""
        self._rounds.append(points)
        self._count += len(points)
        while self._count > self._limit and len(self._rounds) > 1:
            dropped = len(self._rounds.popleft())
            self._count -= dropped
            self.dropped += dropped

    def drop_from(self, ts_ms: int) -> None:
        """Drop the rounds at `ts_ms` and later. They do not count as dropped."""
        while self._rounds and self._rounds[-1][-1].ts_ms >= ts_ms:
            self._count -= len(self._rounds.pop())

    def write_to(self, sink: Sink) -> None:
        """Write all rounds, oldest first.

        Raises:
            SinkUnavailableError: the store is unavailable; the remaining points are kept and written next time.
        """
        while self._rounds:
            sink.write(self._rounds[0])
            # Writing a round again after a failure changes nothing in the store.
            self._count -= len(self._rounds.popleft())


DOWNSAMPLING_INTERVAL_MS = 600_000
MAX_ROUND_AGE_MS = 2 * 86_400_000
"""How much history is checked each time, in ms: earlier runs of the collector may not have downsampled it."""


def spans(times_ms: Sequence[int], *, before_ms: int) -> list[tuple[int, int]]:
    """Return the spans to delete, begin <= time < end: all after the first round of each slot that ends by `before_ms`.

    `times_ms` are the times of the rounds. The first round of a slot has all its points, so it represents the slot.
    """
    slots: dict[int, list[int]] = {}
    for ts_ms in times_ms:
        slots.setdefault(ts_ms // SLOT_MS, []).append(ts_ms)
    return [
        (rounds[0] + 1, (slot + 1) * SLOT_MS)
        for slot, rounds in sorted(slots.items())
        if len(rounds) > 1 and (slot + 1) * SLOT_MS <= before_ms
    ]


def delete(store: Store, periods: Iterable[tuple[int, int]]) -> None:
    """Delete all points in periods, begin <= time < end. If the store refuses it, that is logged.

    Raises:
        ConfigError: the store's settings can't work.
        SinkUnavailableError: the store does not answer.
    """
    try:
        for start_ms, end_ms in periods:
            for measurement in ALL:
                store.delete(measurement, start_ms=start_ms, end_ms=end_ms)
    except (ConfigError, SinkUnavailableError):
        raise
    except TallystreamError as error:
        log.warning("the store refuses to delete old lag, so it keeps more than it should: %s", error)


class Downsampler:
    """Downsample history older than `full_ms` every ten minutes; 0 keeps everything. `clock` returns epoch ms.

    Of old history one round in five minutes is kept. Retention is the store's.
    """

    def __init__(self, store: Store, reader: PointReader, *, full_ms: int, clock: Callable[[], int]) -> None:
        self._store = store
        self._reader = reader
        self._full_ms = full_ms
        self._clock = clock
        self._due_ms = 0

    def run(self) -> None:
        """Delete the spans that are due.

        Raises:
            ConfigError: the store's settings can't work.
            SinkUnavailableError: the store does not answer; the remaining spans are deleted the next time.
        """
        now_ms = self._clock()
        if not self._full_ms or now_ms < self._due_ms:
            return
        before_ms = now_ms - self._full_ms
        rounds = self._reader.read(ROUNDS, ("groups",), start_ms=before_ms - MAX_ROUND_AGE_MS, end_ms=before_ms)
        delete(self._store, spans(rounds[0].times_ms if rounds else [], before_ms=before_ms))
        self._due_ms = now_ms + DOWNSAMPLING_INTERVAL_MS
