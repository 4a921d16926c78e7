"""The rows of the table and how one record changes them: rules 1, 2, 4, 9 and 10, and the short form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.aggregator.table.kinds import falls, merge_values, stored
from tallystream.aggregator.table.outputs import Event
from tallystream.aggregator.table.state import Life, MetricId, Row, State
from tallystream.reporter.record import DEFAULT_APP, MAX_COUNT, Metric, ShortForm, identity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.aggregator.table.inputs import Good, Record

SHORT_FORM_LIFE = ""
Refused = list[tuple[str, str | None]]
"""(reason, the metric as JSON text or None for the whole record)"""


class Rows:
    """Lives and their rows, found by instance; remembers which metrics were touched."""

    def __init__(self, state: State, short_form_every_ms: int, events: list[Event]) -> None:
        self._state = state
        self._short_form_every_ms = short_form_every_ms
        self._events = events
        self._numbers = {metric: number for number, metric in enumerate(state.metrics)}
        self._touched: set[int] = set()
        self._instances: dict[str, list[Life]] = {}
        for life in state.lives:
            self._instances.setdefault(life.instance, []).append(life)

    def lives(self) -> Iterable[Life]:
        """Return every life in the table."""
        return self._state.lives

    def touch_all(self, life: Life) -> None:
        """Mark every metric of a life as changed."""
        self._touched.update(life.rows)

    def take_touched(self) -> dict[int, list[tuple[Life, Row]]]:
        """Return, for each metric that was touched, the rows of all lives that have it; then forget the touches."""
        found: dict[int, list[tuple[Life, Row]]] = {number: [] for number in self._touched}
        self._touched = set()
        for life in self._state.lives:
            fewer = found.keys() & life.rows.keys() if len(found) < len(life.rows) else life.rows.keys()
            for number in fewer:
                if number in found:
                    found[number].append((life, life.rows[number]))
        return found

    def snapshot(self, instance: str, message: Good, record: Record, clock: int) -> Refused:
        """Apply one snapshot: it replaces what its part of its life had, unless it is stale (rule 1)."""
        snapshot = message.snapshot
        life = self._life(instance, snapshot.app, snapshot.life)
        if life is None:
            life = self._new_life(instance, snapshot.app, snapshot.life, record, clock)
        before = life.parts.get(snapshot.part, 0)
        if snapshot.seq <= before:
            self._state.stale += 1
            return []
        was_living = life.living
        self._heard(life, record, clock, snapshot.every_ms)
        life.final, life.living = snapshot.final, not snapshot.final
        life.parts[snapshot.part] = snapshot.seq
        refused: Refused = [(reason, metric) for reason, metric in message.rejected]
        seen: set[int] = set()
        for metric in snapshot.metrics:
            number = self._number(snapshot.app, metric)
            reason = "the snapshot has this metric twice" if number in seen else None
            seen.add(number)
            reason = reason or self._replace(life, number, metric, snapshot.part, snapshot.seq)
            if reason:
                refused.append((reason, msgspec.json.encode(metric).decode()))
        self._touched |= seen
        if len(life.rows) > len(seen):  # rule 9: what the newer snapshot has no more is not of this moment any more
            self._touched.update(n for n, row in life.rows.items() if row.part == snapshot.part and row.seq == before)
        if life.living != was_living:
            self.touch_all(life)
        return refused

    def short_form(self, instance: str, message: ShortForm, record: Record, clock: int) -> Refused:
        """Apply one metric of the short form: a lower value than the last one is a restart, and the old one is kept."""
        life = self._life(instance, DEFAULT_APP, SHORT_FORM_LIFE)
        if life is None:
            life = self._new_life(instance, DEFAULT_APP, SHORT_FORM_LIFE, record, clock)
        self._heard(life, record, clock, self._short_form_every_ms)
        if not life.living:
            life.living = True
            self.touch_all(life)
        number = self._number(DEFAULT_APP, message)
        total, last = life.rows[number].values if number in life.rows else (0, 0)
        restarted = message.value < last  # type: ignore[operator]  # both are whole numbers
        total = total + message.value - (0 if restarted else last)  # type: ignore[operator]
        if total > MAX_COUNT:
            return [("the sum over this counter's restarts leaves 64 bits", None)]
        if restarted:
            self._event("restart", life, record, clock, message.name)
        life.rows[number] = Row(0, 0, (total, message.value))
        self._touched.add(number)
        return []

    def tombstone(self, instance: str, record: Record, clock: int, retire_after_ms: int) -> None:
        """Take an instance's live contribution out (rule 10): snapshots' lives stay as markers of their seqs."""
        for life in list(self._instances.get(instance, ())):
            if clock - life.heard_ms > retire_after_ms and life.life != SHORT_FORM_LIFE:
                continue
            self.touch_all(life)
            if life.rows:
                self._event("tombstone", life, record, clock)
            life.rows.clear()
            life.living = False
            if life.life == SHORT_FORM_LIFE:
                self._state.lives.remove(life)
                self._instances[instance].remove(life)

    def _replace(self, life: Life, number: int, metric: Metric, part: int, seq: int) -> str | None:
        """Put the metric's values into its row and return None, or the reason why not."""
        try:
            values = stored(metric)
        except OverflowError:
            return "a value is beyond the range of floats"
        row = life.rows.get(number)
        if row is None:
            life.rows[number] = Row(part, seq, values)
            return None
        if row.part != part:
            return f"the metric was in part {row.part} of this life and is now in part {part}"
        if falls(metric.type, row.values, values):
            return f"the count fell within a life, from {row.values[0]} to {values[0]}"
        row.seq, row.values = seq, merge_values(metric.type, row.values, values)
        return None

    def _life(self, instance: str, app: str, life: str) -> Life | None:
        # The newest life is the one that most records are of.
        for known in reversed(self._instances.get(instance, ())):
            if known.life == life and known.app == app:
                return known
        return None

    def _new_life(self, instance: str, app: str, life: str, record: Record, clock: int) -> Life:
        new = Life(instance, app, life, "", clock, 0)
        others = self._instances.setdefault(instance, [])
        if life != SHORT_FORM_LIFE and any(other.app == app and other.life != SHORT_FORM_LIFE for other in others):
            self._event("restart", new, record, clock)
        others.append(new)
        self._state.lives.append(new)
        return new

    def _heard(self, life: Life, record: Record, clock: int, every_ms: int) -> None:
        life.partition, life.heard_ms, life.every_ms = f"{record.topic}:{record.partition}", clock, every_ms

    def _number(self, app: str, metric: Metric | ShortForm) -> int:
        metric_id: MetricId = (app, *identity(metric.name, metric.type, metric.tags))
        number = self._numbers.get(metric_id)
        if number is None:
            number = self._numbers[metric_id] = len(self._state.metrics)
            self._state.metrics.append(metric_id)
        return number

    def _event(self, kind: str, life: Life, record: Record, clock: int, detail: str = "") -> None:
        offset = (record.topic, record.partition, record.offset)
        self._events.append(Event(kind, life.app, life.instance, life.life, clock, offset, detail))
