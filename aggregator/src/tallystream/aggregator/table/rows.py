"""The rows of the table and how one record changes them: rules 1, 2, 4, 9 and 10, and the short form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.aggregator.table.kinds import falls, merge_values, stored
from tallystream.aggregator.table.limits import METRICS_PER_LIFE, METRICS_PER_RECORD, untimely
from tallystream.aggregator.table.lives import SHORT_FORM_LIFE, Lives
from tallystream.aggregator.table.sketches import taken
from tallystream.aggregator.table.state import Life, Row
from tallystream.reporter.record import DEFAULT_APP, MAX_COUNT, Metric, ShortForm, identity
from tallystream.reporter.ulid import ulid_ms

if TYPE_CHECKING:
    from tallystream.aggregator.table.inputs import Good, Record
    from tallystream.aggregator.table.settings import TableSettings
    from tallystream.aggregator.table.state import MetricId
    from tallystream.reporter.record import Snapshot

Refused = list[tuple[str, str | None]]
"""(reason, the metric as JSON text or None for the whole record)"""


class Rows:
    """Applies snapshots, the short form and tombstones to the lives."""

    def __init__(self, lives: Lives, settings: TableSettings) -> None:
        self._lives = lives
        self._settings = settings

    def snapshot(self, instance: str, message: Good, record: Record, clock: int) -> Refused:
        """Apply one snapshot: it replaces what its part of its life had, unless untimely or stale (rules 1 and 3)."""
        snapshot = message.snapshot
        untimed = untimely(snapshot, clock, self._settings.retire_after_ms)
        if untimed is not None:
            return [(untimed, None)]
        life = self._lives.find(instance, snapshot.app, snapshot.life)
        if life is None:
            # An application whose clock is ahead is kept by its own time, so that its first record can't come twice.
            keep = max(clock, ulid_ms(snapshot.life))
            life = self._lives.add(Life(instance, snapshot.app, snapshot.life, "", clock, 0, keep), record, clock)
        self._lives.dirty.add(instance)
        life.keep_ms = max(life.keep_ms, clock)
        if _includes(life, snapshot.part, record):
            return []
        before = life.parts.get(snapshot.part, 0)
        if snapshot.seq <= before:
            self._lives.change(life, snapshot.part, record)
            self._lives.state.stale += 1
            return []
        # Where another part includes the record, it knows of newer things.
        heard = not any(_includes(life, part, record) for part in life.places)
        if heard and life.living == snapshot.final:
            self._lives.partials.touch(life, life.rows)
        else:
            # Rule 9: what was current and is not any more, be it missing or refused, changes rates and gauges.
            current = (n for n, row in life.rows.items() if row.part == snapshot.part and row.seq == before)
            self._lives.partials.touch(life, current)
        if heard:
            _heard(life, record, clock, snapshot.every_ms)
            life.final, life.living = snapshot.final, not snapshot.final
        self._lives.change(life, snapshot.part, record)
        life.parts[snapshot.part] = snapshot.seq
        refused: Refused = [(reason, metric) for reason, metric in message.rejected]
        refused += self._replace_all(life, snapshot, record, clock)
        if message.beyond:
            taken = self._settings.max_metrics
            refused.append((f"limit: {message.beyond} metrics beyond the {taken} that a record may have", None))
            self._lives.limit(life, METRICS_PER_RECORD, record, clock)
        return refused

    def short_form(self, instance: str, message: ShortForm, record: Record, clock: int) -> Refused:
        """Apply one metric of the short form: a lower value than the last one is a restart, and the old one is kept."""
        life = self._lives.find(instance, DEFAULT_APP, SHORT_FORM_LIFE)
        if life is not None and _includes(life, 0, record):
            return []
        if life is None:
            life = self._lives.add(Life(instance, DEFAULT_APP, SHORT_FORM_LIFE, "", clock, 0, clock), record, clock)
        self._lives.dirty.add(instance)
        _heard(life, record, clock, self._settings.short_form_every_ms)
        self._lives.change(life, 0, record)
        life.keep_ms = max(life.keep_ms, clock)
        if not life.living:
            self._lives.partials.touch(life, life.rows)
            life.living = True
        metric_id = _metric_id(DEFAULT_APP, message)
        if self._lives.known(metric_id) not in life.rows and len(life.rows) >= self._settings.max_metrics:
            self._lives.limit(life, METRICS_PER_LIFE, record, clock)
            return [(f"limit: a metric beyond the {self._settings.max_metrics} that a life may have", None)]
        number = self._lives.number(metric_id)
        total, last = life.rows[number].values if number in life.rows else (0, 0)
        restarted = message.value < last  # type: ignore[operator]  # both are whole numbers
        total = total + message.value - (0 if restarted else last)  # type: ignore[operator]
        if total > MAX_COUNT:
            return [("the sum over this counter's restarts leaves 64 bits", None)]
        if restarted:
            self._lives.event("restart", life, record, clock, message.name)
        self._lives.partials.touch(life, (number,))
        life.rows[number] = Row(0, 0, (total, message.value))
        return []

    def tombstone(self, instance: str, record: Record, clock: int) -> None:
        """Take an instance's live contribution out (rule 10): snapshots' lives stay as markers of their seqs.

        What has retired is in the base by now, and stays there.
        """
        self._lives.dirty.add(instance)
        for life in list(self._lives.of(instance)):
            every = set(life.parts) or {0}
            parts = {part for part in every if not _includes(life, part, record)}
            gone = [number for number, row in life.rows.items() if row.part in parts]
            self._lives.partials.touch(life, gone)
            if gone:
                self._lives.event("tombstone", life, record, clock)
            for number in gone:
                del life.rows[number]
            for part in parts:
                self._lives.change(life, part, record)
            life.living = life.living and parts != every
            if life.life == SHORT_FORM_LIFE and parts:
                self._lives.bury(life)

    def _replace_all(self, life: Life, snapshot: Snapshot, record: Record, clock: int) -> Refused:
        refused: Refused = []
        seen: set[MetricId] = set()
        beyond = 0
        for metric in snapshot.metrics:
            try:
                values, sketch = stored(metric), taken(metric)
            except OverflowError:
                refused.append(("a value is beyond the range of floats", _text(metric)))
                continue
            except ValueError as error:
                refused.append((str(error), _text(metric)))
                continue
            metric_id = _metric_id(snapshot.app, metric)
            if metric_id in seen:
                refused.append(("the snapshot has this metric twice", _text(metric)))
                continue
            seen.add(metric_id)
            number = self._lives.known(metric_id)
            row = life.rows.get(number)
            if row is None:
                if len(life.rows) >= self._settings.max_metrics:
                    beyond += 1
                    continue
                number = self._lives.number(metric_id)  # only now: what is refused takes no room
                self._lives.partials.touch(life, (number,))
                life.rows[number] = Row(snapshot.part, snapshot.seq, values, sketch)
            elif row.part != snapshot.part:
                reason = f"the metric was in part {row.part} of this life and is now in part {snapshot.part}"
                refused.append((reason, _text(metric)))
                continue
            elif falls(metric.type, row.values, values):
                reason = f"the count fell within a life, from {row.values[0]} to {values[0]}"
                refused.append((reason, _text(metric)))
                continue
            else:
                self._lives.partials.touch(life, (number,))
                row.seq, row.sketch = snapshot.seq, sketch
                row.values = merge_values(metric.type, row.values, values)
        if beyond:
            most = self._settings.max_metrics
            refused.append((f"limit: {beyond} metrics beyond the {most} that a life may have", None))
            self._lives.limit(life, METRICS_PER_LIFE, record, clock)
        return refused


def _metric_id(app: str, metric: Metric | ShortForm) -> MetricId:
    return app, *identity(metric.name, metric.type, metric.tags)


def _text(metric: Metric) -> str:
    return msgspec.json.encode(metric).decode()


def _includes(life: Life, part: int, record: Record) -> bool:
    """Tell whether the part's rows include the record already: only after a rebuild is one met again."""
    return life.partition == record.clock_name and record.offset <= life.places.get(part, -1)


def _heard(life: Life, record: Record, clock: int, every_ms: int) -> None:
    if life.partition != record.clock_name:  # partitions were added, and its instance is in another one now
        life.places.clear()
    life.partition, life.heard_ms, life.every_ms = record.clock_name, clock, every_ms
