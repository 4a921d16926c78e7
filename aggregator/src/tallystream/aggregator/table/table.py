"""The table: records in offset order go in, and what changed comes out at the end of a batch.

Every verdict about counts depends on one instance's records in offset order alone, never on where a batch ends: the
same records cut into other batches give the same table, dead letters and events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tallystream.aggregator.table.inputs import Good, Record, Unreadable, read_key, read_value
from tallystream.aggregator.table.kinds import fits, sum_lives
from tallystream.aggregator.table.outputs import DeadLetter, Event, Offsets, Total
from tallystream.aggregator.table.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.aggregator.table.state import Life, Row, State

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What may be chosen of the rules; times in milliseconds.

    `retire_after_ms`: how far back a tombstone reaches. `short_form_every_ms`: the interval that is assumed of a
    program that publishes the short form, which does not say.
    """

    retire_after_ms: int = 24 * HOUR_MS
    short_form_every_ms: int = 60_000


class Changes(NamedTuple):
    """What a batch changed: `totals` of every metric touched, sorted; the rest in the order of the records."""

    totals: list[Total]
    dead: list[DeadLetter]
    events: list[Event]


class Table:
    """The changelog table over `state`, which it changes in place. Used by one thread."""

    def __init__(self, state: State, settings: TableSettings | None = None) -> None:
        self.state = state
        self._settings = settings or TableSettings()
        self._dead: list[DeadLetter] = []
        self._events: list[Event] = []
        self._rows = Rows(state, self._settings.short_form_every_ms, self._events)

    def apply(self, records: Iterable[Record]) -> None:
        """Take records, which must be in offset order within each partition."""
        for record in records:
            clock = self._tick(record)
            refused = self._take(record, clock)
            self._dead += [DeadLetter(record, reason, metric) for reason, metric in refused]

    def notice_silence(self, ahead_ms: int = 0) -> None:
        """Mark the lives silent whose deadline has passed; `ahead_ms` is how long ago the clocks last moved.

        Touches no count: only gauges, rates and the numbers of lives depend on it (rule 5).
        """
        for life in self._rows.lives():
            if life.living and self.state.clocks[life.partition] + ahead_ms >= life.deadline_ms:
                life.living = False
                self._rows.touch_all(life)
                # The moment of falling silent, not of noticing it: a batch that runs twice writes the same point.
                self.state.out_ms = max(self.state.out_ms, life.deadline_ms)

    def next_silence_ms(self) -> int | None:
        """Return how far the clock is from the next life's deadline, None when no life is living."""
        left = [life.deadline_ms - self.state.clocks[life.partition] for life in self._rows.lives() if life.living]
        return min(left, default=None)

    def changes(self) -> Changes:
        """Return what changed since the last call, and forget it."""
        totals = self._totals(self._rows.take_touched())
        changes = Changes(totals, list(self._dead), list(self._events))
        self._dead.clear()
        self._events.clear()
        return changes

    def _tick(self, record: Record) -> int:
        state, partition = self.state, f"{record.topic}:{record.partition}"
        clock = max(state.clocks.get(partition, 0), record.timestamp_ms)
        state.clocks[partition] = clock
        state.offsets[partition] = record.offset
        state.out_ms = max(state.out_ms, clock)
        return clock

    def _take(self, record: Record, clock: int) -> list[tuple[str, str | None]]:
        """Apply one record and return the reasons for what was refused, each with the metric it is about."""
        instance = read_key(record.key)
        if isinstance(instance, Unreadable):
            return [(instance.reason, None)]
        if record.value is None:
            self._rows.tombstone(instance, record, clock, self._settings.retire_after_ms)
            return []
        message = read_value(record.value)
        if isinstance(message, Unreadable):
            return [(message.reason, None)]
        if isinstance(message, Good):
            return self._rows.snapshot(instance, message, record, clock)
        return self._rows.short_form(instance, message, record, clock)

    def _totals(self, touched: dict[int, list[tuple[Life, Row]]]) -> list[Total]:
        totals = []
        offsets: Offsets = {}
        for partition, offset in self.state.offsets.items():
            topic, _, index = partition.rpartition(":")
            offsets.setdefault(topic, {})[index] = offset
        for number in sorted(touched, key=self.state.metrics.__getitem__):
            metric = self.state.metrics[number]
            rows = [(row.values, life.current(row)) for life, row in touched[number]]
            living = [life.instance for life, row in touched[number] if life.current(row)]
            try:
                summed = sum_lives(metric[2], rows)
            except OverflowError:
                summed = {}
            if summed and fits(summed):
                totals.append(Total(metric, summed, len(living), len(set(living)), self.state.out_ms, offsets))
                if number in self.state.overflowed:
                    self.state.overflowed.remove(number)
            elif number not in self.state.overflowed:
                self.state.overflowed.append(number)
                self._events.append(Event("overflow", metric[0], "", "", self.state.out_ms, detail=metric[1]))
        return totals
