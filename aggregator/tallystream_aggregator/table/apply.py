"""The rows of the table and how one record changes them: rules 1, 2, 4, 9 and 10, and the short form."""

from __future__ import annotations

import operator
from array import array
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from tallystream.record import DEFAULT_APP, MAX_COUNT, ShortForm, identity
from tallystream.ulid import ulid_ms
from tallystream_aggregator.table.arithmetic.metric_types import Values, falls, merge_values, stored
from tallystream_aggregator.table.arithmetic.sketches import taken
from tallystream_aggregator.table.layouts import counts_of, size
from tallystream_aggregator.table.limits import METRICS_PER_RECORD, Room, out_of_bounds, over_limit
from tallystream_aggregator.table.lives import SHORT_FORM_LIFE, Lives
from tallystream_aggregator.table.state import Life, Row

if TYPE_CHECKING:
    from tallystream.record import Metric, Snapshot
    from tallystream_aggregator.table.decode import Forget, Good, Record
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.state import MetricId

Refused = list[tuple[str, str | None]]
"""(reason, the metric as JSON text or None for the whole record)"""


def replace_block(lives: Lives, life: Life, snapshot: Snapshot) -> Refused | None:
    """Replace the block of a part, and the rows beside it, by those of a newer snapshot. Return the refused metrics.

    Return None and change nothing if the block can't be replaced as a whole: the part has none, the snapshot has other
    metrics, or a count falls.
    """
    block = life.blocks.get(snapshot.part)
    layout = None if block is None else lives.layouts.of(block)
    if block is None or layout is None or not layout.fits(snapshot.metrics):
        return None
    counts = layout.counts(snapshot.metrics)
    differences = list(map(operator.sub, counts, counts_of(block)))
    if min(differences, default=0) < 0:
        return None
    lives.partials.shift(life, layout, differences)
    block.counts = array("q", counts).tobytes()
    before = life.parts[snapshot.part]
    refused: Refused = []
    for place, number in layout.others:
        metric = snapshot.metrics[place]
        if life.rows[number].seq == before:  # a current row is no longer current if its new values are refused
            lives.partials.mark_dirty(life, (number,))
        try:
            values, sketch = stored(metric), taken(metric)
        except (OverflowError, ValueError) as error:
            refused.append((_why(error), _text(metric)))
            continue
        fault = _replace(lives, life, snapshot, number, values, sketch=sketch, before=before)
        if fault is not None:
            refused.append((fault, _text(metric)))
    return refused


def replace_all(
    lives: Lives, life: Life, snapshot: Snapshot, before: int, room: Room
) -> tuple[Refused, Counter[str], list[int]]:
    """Replace the row of each metric in `life`, whose part has no block.

    Return the refused metrics, the number of metrics over each limit of `room`, and the numbers of all others.
    `before` is the seq of the part's last snapshot; the caller has marked its rows dirty. A snapshot that is not newer
    than that only replaces metrics that later snapshots lack.
    """
    refused: Refused = []
    seen: set[MetricId] = set()
    over_limit: Counter[str] = Counter()
    accepted: list[int] = []
    elsewhere = [part for part in life.blocks if part != snapshot.part]
    for metric in snapshot.metrics:
        try:
            values, sketch = stored(metric), taken(metric)
        except (OverflowError, ValueError) as error:
            refused.append((_why(error), _text(metric)))
            continue
        metric_id = (snapshot.app, *identity(metric.name, metric.type, metric.tags))
        if metric_id in seen:
            refused.append(("the snapshot has this metric twice", _text(metric)))
            continue
        seen.add(metric_id)
        number = lives.known(metric_id)
        row = life.rows.get(number)
        if row is None and elsewhere:
            row = lives.layouts.row(life, number)
        if row is None:
            limit = room.limit(size(life), metric_id, known=number >= 0)
            if limit is not None:
                over_limit[limit] += 1
                continue
            if number < 0:  # only now, as a refused metric takes no room
                number = lives.number(metric_id)
                room.take(metric_id)
            lives.partials.mark_dirty(life, (number,))
            life.rows[number] = Row(snapshot.part, snapshot.seq, values, sketch)
        elif row.part != snapshot.part:
            moved = f"the metric was in part {row.part} of this life and is now in part {snapshot.part}"
            refused.append((moved, _text(metric)))
            continue
        else:
            fault = _replace(lives, life, snapshot, number, values, sketch=sketch, before=before)
            if fault is not None:
                refused.append((fault, _text(metric)))
                continue
        accepted.append(number)
    return refused, over_limit, accepted


def _replace(
    lives: Lives, life: Life, snapshot: Snapshot, number: int, values: Values, *, sketch: bytes | None, before: int
) -> str | None:
    """Replace the values and the sketch of a row and return None, or return why they are refused."""
    row, kind = life.rows[number], lives.state.metrics[number][2]
    if snapshot.seq > row.seq and falls(kind, row.values, values):
        return f"the count fell within a life, from {row.values[0]} to {values[0]}"
    if snapshot.seq <= row.seq and kind != "position":
        return None
    if row.seq != before or snapshot.seq <= before or not life.complete:
        lives.partials.mark_dirty(life, (number,))
    if snapshot.seq > row.seq:
        row.seq, row.sketch, row.values = snapshot.seq, sketch, merge_values(kind, row.values, values)
    else:  # a position: the offsets of an older snapshot were consumed, too
        row.values = merge_values(kind, row.values, values)
    return None


def _why(error: OverflowError | ValueError) -> str:
    return str(error) if isinstance(error, ValueError) else "a value is beyond the range of floats"


def _text(metric: Metric) -> str:
    return msgspec.json.encode(metric).decode()


class Rows:
    """Applies snapshots, records of the short form, tombstones and forget records to the lives.

    `accepted` maps (instance, app, life, part) → the offset of the last snapshot of this batch that was accepted
    completely. `unexpanded` are instances with a record that supersedes others and follows one that was not accepted
    completely: the records that it supersedes have to be read again (table.compaction).
    """

    def __init__(self, lives: Lives, settings: TableSettings) -> None:
        self._lives = lives
        self._settings = settings
        self._room = Room(lives.state.metrics, settings)
        self.accepted: dict[tuple[str, str, str, int], int] = {}
        self.unexpanded: set[str] = set()

    def snapshot(
        self,
        instance: str,
        message: Good,
        record: Record,
        clock: int,
        applied: set[tuple[str, str, str]] | None = None,
    ) -> Refused:
        """Apply a snapshot to its part of its life, unless it is late (rule 3) or stale (rule 1).

        Return what is refused. If a record has several snapshots, `applied` are the lives of those that were applied
        before, as (instance, app, life); the life of this one is added.
        """
        snapshot = message.snapshot
        life = self._life_of(instance, snapshot, record, clock)
        if isinstance(life, str):
            return [(life, None)]
        self._lives.mark(instance)
        life.keep_ms = max(life.keep_ms, clock)
        key = (instance, snapshot.app, snapshot.life)
        if _includes(life, snapshot.part, record) and (applied is None or key not in applied):
            return []
        if applied is not None:
            applied.add(key)
        before = life.parts.get(snapshot.part, 0)
        if snapshot.seq <= before:
            return self._stale(life, message, record)
        place = (instance, snapshot.app, snapshot.life, snapshot.part)
        self._require_followed(instance, record, self.accepted.get(place))
        refused = self._replace(life, snapshot, record, clock, before)
        refused = [*message.rejected, *refused]
        if message.beyond:
            refused.append(self._beyond(life, METRICS_PER_RECORD, message.beyond, record, clock))
        if not refused:
            self.accepted[place] = record.offset
        return refused

    def _life_of(self, instance: str, snapshot: Snapshot, record: Record, clock: int) -> Life | str:
        """Return the life of a snapshot, which may be new, or why the snapshot is refused."""
        untimed = out_of_bounds(snapshot, record.timestamp_ms)
        if untimed is not None:
            return untimed
        life = self._lives.find(instance, snapshot.app, snapshot.life)
        if life is None and self._lives.is_listed(instance, snapshot.app, snapshot.life):
            if record.superseded is not None:
                self.unexpanded.add(instance)
            return "too late: the life is being forgotten"
        if life is None:
            keep_ms = max(clock, ulid_ms(snapshot.life))  # until a day after that, its first record may arrive again
            new = Life(instance, snapshot.app, snapshot.life, "", clock, 0, keep_ms, complete=snapshot.complete)
            return self._lives.add(new, record, clock)
        if life.complete != snapshot.complete:
            return "complete: the earlier snapshots of this life have the other value"
        return life

    def _replace(self, life: Life, snapshot: Snapshot, record: Record, clock: int, before: int) -> Refused:
        """Make a snapshot the newest of its part, and return what is refused. `before` is the seq of the one before."""
        lives = self._lives
        # A part that includes the record already, after a rebuild, has newer values of living and final.
        is_newest = not any(_includes(life, part, record) for part in life.places)
        if is_newest and life.living == snapshot.final:
            lives.partials.set_living(life, living=not snapshot.final)
        refused = replace_block(lives, life, snapshot)
        if refused is None:
            lives.layouts.open(life, snapshot.part)
            if life.complete:
                # Rule 9: a row that is no longer current, because it is missing or refused, changes rates and gauges.
                current = (n for n, row in life.rows.items() if row.part == snapshot.part and row.seq == before)
                lives.partials.mark_dirty(life, current)
        if is_newest:
            _set_last_seen(life, record, clock, snapshot.every_ms)
            life.final = snapshot.final
        lives.change(life, snapshot.part, record)
        life.parts[snapshot.part] = snapshot.seq
        if refused is not None:
            return refused
        refused, over, numbers = replace_all(lives, life, snapshot, before, self._room)
        if len(numbers) == len(snapshot.metrics):
            lives.layouts.close(life, snapshot.part, numbers)
        return refused + [self._beyond(life, limit, number, record, clock) for limit, number in over.items()]

    def _stale(self, life: Life, message: Good, record: Record) -> Refused:
        """Ignore a stale snapshot.

        If it is not complete, or comes from another partition than the newest one of its part, take metrics that newer
        ones lack.
        """
        # The records that it supersedes have lower seqs, and are stale too.
        self._lives.state.stale += record.represents
        part = message.snapshot.part
        if life.partition == record.clock_name and part in life.places:
            self._lives.change(life, part, record)
            if life.complete:
                return []
        else:  # the part keeps no place here, so that the next one is taken too
            self._lives.publish(life, part)
        if record.superseded is not None:
            self.unexpanded.add(life.instance)
        self._lives.layouts.open(life, part)
        replace_all(self._lives, life, message.snapshot, life.parts[part], self._room)
        return []

    def _beyond(self, life: Life, limit: str, number: int, record: Record, clock: int) -> tuple[str, None]:
        """Return one refusal for `number` metrics over a limit."""
        self._lives.limit(life, limit, record, clock)
        return over_limit(limit, number, self._settings), None

    def _require_followed(self, instance: str, record: Record, accepted: int | None) -> None:
        """Require that the record before the superseded ones, at offset `accepted`, was accepted completely."""
        if record.superseded is not None and record.superseded.first != accepted:
            self.unexpanded.add(instance)

    def short_form(self, instance: str, message: ShortForm, record: Record, clock: int) -> Refused:
        """Apply a counter of the short form. A value below the last one is a restart: the last one stays in the sum."""
        life = self._lives.find(instance, DEFAULT_APP, SHORT_FORM_LIFE)
        if life is not None and _includes(life, 0, record):
            return []
        if life is None:
            life = self._lives.add(Life(instance, DEFAULT_APP, SHORT_FORM_LIFE, "", clock, 0, clock), record, clock)
        self._lives.mark(instance)
        _set_last_seen(life, record, clock, self._settings.short_form_every_ms)
        self._lives.change(life, 0, record)
        life.keep_ms = max(life.keep_ms, clock)
        if not life.living:
            self._lives.partials.set_living(life, living=True)
        metric_id = (DEFAULT_APP, *identity(message.name, message.type, message.tags))
        number = self._lives.known(metric_id)
        row = life.rows.get(number)
        if record.superseded is not None and not _follows(row, message.value, record.superseded.after):
            self.unexpanded.add(instance)
            return []
        if row is None:
            limit = self._room.limit(len(life.rows), metric_id, known=number >= 0)
            if limit is not None:
                return [self._beyond(life, limit, 1, record, clock)]
        return self._add(life, metric_id, message.value, record, clock)

    def _add(self, life: Life, metric_id: MetricId, value: int, record: Record, clock: int) -> Refused:
        """Set a counter of the short form, for which there is room, to a new value."""
        row = life.rows.get(self._lives.known(metric_id))
        total, last = row.values if row is not None else (0, 0)
        restarted = value < last  # type: ignore[operator]  # both are whole numbers
        total = total + value - (0 if restarted else last)  # type: ignore[operator]
        if total > MAX_COUNT:
            return [("the sum over this counter's restarts leaves 64 bits", None)]
        number = self._lives.known(metric_id)
        if number < 0:
            number = self._lives.number(metric_id)
            self._room.take(metric_id)
        if restarted:
            self._lives.event("restart", life, record, clock, metric_id[1])
        self._lives.partials.mark_dirty(life, (number,))
        if row is None:
            life.rows[number] = Row(0, 0, (total, value))
        else:
            row.values = (total, value)
        return []

    def tombstone(self, instance: str, record: Record, clock: int, forget: Forget | None = None) -> None:
        """Remove the contributions of an instance's lives (rule 10). Lives of snapshots stay as markers of their seqs.

        With `forget`, the content of a forget record, only lives that it names are removed. Sums of lives that were
        forgotten before stay.
        """
        self._lives.bring_all_back(instance)
        self._lives.mark(instance)
        for life in list(self._lives.of(instance)):
            if forget is not None and not forget.has_life(life.app, life.life):
                continue
            self._lives.layouts.open_all(life)
            every = set(life.parts) or {0}
            parts = {part for part in every if not _includes(life, part, record)}
            gone = [number for number, row in life.rows.items() if row.part in parts]
            self._lives.partials.empty(life, gone)
            if gone:
                self._lives.event("tombstone" if forget is None else "forget", life, record, clock)
            for number in gone:
                del life.rows[number]
            for part in parts:
                self._lives.change(life, part, record)
            life.living = life.living and parts != every
            if life.life == SHORT_FORM_LIFE and parts:
                self._lives.delete_all(life)


def _follows(row: Row | None, value: int, after: int) -> bool:
    """Tell whether the superseded records follow the row's last value and keep the total within 64 bits."""
    return row is not None and row.values[1] == after and row.values[0] + value - after <= MAX_COUNT  # type: ignore[operator]


def _includes(life: Life, part: int, record: Record) -> bool:
    """Tell whether the part's rows include the record already. Only after a rebuild a record is read again."""
    return record.offset <= life.places.get(part, -1) and life.partition == record.clock_name


def _set_last_seen(life: Life, record: Record, clock: int, every_ms: int) -> None:
    partition = record.clock_name
    if life.partition != partition:  # partitions were added, and the instance moved to this one
        life.places.clear()
    life.partition, life.last_seen_ms, life.every_ms = partition, clock, every_ms
