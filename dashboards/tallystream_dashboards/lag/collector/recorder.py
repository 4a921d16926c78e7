"""Choose the points of a round to write, and hold them while the store is unavailable."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.sinks.base import Point
from tallystream_dashboards.lag.status import Rules
from tallystream_dashboards.lag.storage import ROUNDS, ends_point, group_point, partition_point, rules_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.sinks.base import Field, Sink
    from tallystream_dashboards.lag.state import GroupState

REPEAT_MS = 30_000
"""An unchanged point is written again after this time, in ms, so that a longer gap means that nothing was read."""
SLOT_MS = 300_000
"""All points of the first round of each slot, in ms, are written; downsampling keeps only this round."""
GROWS = frozenset({"seconds", "record_ms", "reason", "seen_ms"})
"""Fields whose change alone is not written, such as an age, which grows with time, and a reason, which has seconds."""


class _Kept(NamedTuple):
    """The newest point of a series. `written_ms` is the time of the newest one that was written."""

    names: tuple[str, ...]
    values: tuple[Field, ...]
    ts_ms: int
    written_ms: int

    def point(self, like: Point) -> Point:
        return Point(like.measurement, like.tags, dict(zip(self.names, self.values, strict=True)), self.ts_ms)


class Recorder:
    """Chooses which points of each series are written. Not thread-safe. `rules` are those of the statuses."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules_fields(rules or Rules())
        self._kept: dict[tuple[str, ...], _Kept] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._slot = -1

    def round(
        self,
        states: Iterable[GroupState],
        places: Mapping[tuple[str, int], tuple[int, int]],
        ts_ms: int,
        *,
        took_s: float = 0.0,
        problems: tuple[str, ...] = (),
        complete: bool = True,
    ) -> list[Point]:
        """Return the points to write for a round at `ts_ms` (epoch ms).

        If a series changes, the result includes its last point before the change.
        """
        whole, self._slot = ts_ms // SLOT_MS != self._slot, ts_ms // SLOT_MS
        before = self._kept
        self._kept = {}
        found: list[Point] = []
        groups = partitions = 0
        for state in states:
            for point in _points(state, ts_ms):
                self._take(point, before, found, whole=whole and not state.gone, once=state.gone)
            groups += not state.gone
            partitions += 0 if state.gone else state.count
        for place, (start, end) in places.items():
            self._take(ends_point(place, start, end, ts_ms), before, found, whole=whole)
        fields: dict[str, Field] = {"groups": groups, "partitions": partitions, "took_s": float(took_s), **self._rules}
        if problems:
            fields["problems"] = "; ".join(problems)
        if not complete:
            fields["incomplete"] = True
        found.append(Point(ROUNDS, {}, fields, ts_ms))
        return found

    def _take(
        self,
        point: Point,
        before: Mapping[tuple[str, ...], _Kept],
        found: list[Point],
        *,
        whole: bool,
        once: bool = False,
    ) -> None:
        key = (point.measurement, *point.tags.values())
        names = tuple(point.fields)
        names, values = self._names.setdefault(names, names), tuple(point.fields.values())
        kept = before.get(key)
        written_ms = point.ts_ms
        if kept is not None and kept.names == names and _same(names, kept.values, values):
            if once or (not whole and point.ts_ms - kept.written_ms < REPEAT_MS):
                written_ms = kept.written_ms
        elif kept is not None and kept.ts_ms != kept.written_ms:
            found.append(kept.point(point))
        if written_ms == point.ts_ms:
            found.append(point)
        self._kept[key] = _Kept(names, values, point.ts_ms, written_ms)


def _same(names: tuple[str, ...], before: tuple[Field, ...], now: tuple[Field, ...]) -> bool:
    return all(one == other or name in GROWS for name, one, other in zip(names, before, now, strict=True))


def _points(state: GroupState, ts_ms: int) -> Iterable[Point]:
    if not state.gone:
        yield from (partition_point(state.group, one, state.members, ts_ms) for one in state.partitions)
    yield group_point(state, ts_ms)


LIMIT = 200_000
"""How many points are held while the store is unavailable: about 10 minutes for 600 partitions every 2 s."""


class WriteBuffer:
    """The points of rounds that are not yet written. Above `limit` points the oldest rounds are dropped and counted."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._rounds: deque[list[Point]] = deque()
        self._limit = limit
        self._held = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._held

    def add(self, points: list[Point]) -> None:
        """Add one round's points. The newest round is never dropped."""
        self._rounds.append(points)
        self._held += len(points)
        while self._held > self._limit and len(self._rounds) > 1:
            lost = len(self._rounds.popleft())
            self._held -= lost
            self.dropped += lost

    def write_to(self, sink: Sink) -> int:
        """Write all rounds, oldest first, and return the number of points.

        Raises:
            SinkUnavailableError: the store is unavailable; the remaining points are held and written next time.
        """
        written = 0
        while self._rounds:
            sink.write(self._rounds[0])
            # A round is removed only when it is durable. Writing it again after a failure changes nothing in the store.
            sink.flush()
            done = len(self._rounds.popleft())
            self._held -= done
            written += done
        return written
