"""The rows of the table and how one record changes them: rules 1 to 4, 9 and 10, and the short form."""

from __future__ import annotations

import operator
from array import array
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tallystream.record import DEFAULT_APP, MAX_COUNT, TIMELY_MS, ShortForm, identity
from tallystream.ulid import ulid_ms
from tallystream_aggregator.table.arithmetic.metric_types import (
    Stored,
    count_falls,
    is_above,
    merge_values,
    replaces,
    stored,
    stored_values,
)
from tallystream_aggregator.table.instances import SHORT_FORM_LIFE
from tallystream_aggregator.table.layouts import MIN_METRICS, counts_of
from tallystream_aggregator.table.limits import METRICS_PER_RECORD, refuse_over_limit, size_of_life
from tallystream_aggregator.table.records.refusals import RecordRefusals, Refusal
from tallystream_aggregator.table.state import Life, Row

if TYPE_CHECKING:
    from tallystream.record import Metric, Snapshot
    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.lives import Lives
    from tallystream_aggregator.table.records.decode import DecodedSnapshot, Forget, Record


def out_of_bounds(snapshot: Snapshot, timestamp_ms: int) -> str | None:
    """Return why a record appended at `timestamp_ms` is too late or too early, or None if it is neither.

    This depends only on the record and its append time. The reporter makes the same comparison when a record is
    acknowledged, so it knows which records count.
    """
    ahead = ulid_ms(snapshot.life) - timestamp_ms
    if ahead > TIMELY_MS:
        return f"too early: the life's ULID is {ahead} ms ahead of the broker; the limit is {TIMELY_MS} ms"
    since, what = (snapshot.prev, "prev") if snapshot.prev is not None else (ulid_ms(snapshot.life), "the life's ULID")
    late = timestamp_ms - since
    if late < TIMELY_MS:
        return None
    return f"too late: appended {late} ms after {what}; the limit is {TIMELY_MS} ms"


def replace_block(lives: Lives, life: Life, snapshot: Snapshot) -> bool:
    """Replace the block of a part, and the rows beside it, by the values of a newer snapshot as they are. Return True.

    Return False and change nothing if that can't be: the part has no block, the snapshot has other metrics, a metric is
    refused or was not current, a count is lower, or an extreme is narrower.
    """
    block = life.blocks.get(snapshot.part)
    layout = None if block is None else lives.layouts.layout_for(block)
    if block is None or layout is None or not layout.matches(snapshot.metrics):
        return False
    counts = layout.counts(snapshot.metrics)
    differences = list(map(operator.sub, counts, counts_of(block)))
    if min(differences, default=0) < 0:
        return False
    if layout.others:
        before, rows = life.parts[snapshot.part], [life.rows[number] for number in layout.others]
        old = [(row.values, row.sketch) for row in rows]
        new = list(stored(layout.others_of(snapshot.metrics)))
        if {row.seq for row in rows} != {before} or not all(map(replaces, layout.kinds_of_others, old, new)):
            return False
        lives.sums.replace_current(life, layout.others, old, new)  # type: ignore[arg-type]  # none is refused
        for row, (values, sketch) in zip(rows, new, strict=True):  # type: ignore[misc]  # none is refused
            row.seq, row.sketch, row.values = snapshot.seq, sketch, values
    lives.sums.add_differences(life, layout, differences)
    block.counts = array("q", counts).tobytes()
    return True


def replace_all(
    lives: Lives, life: Life, snapshot: Snapshot, before: int, refused: RecordRefusals
) -> tuple[Counter[str], list[int]]:
    """Replace the row of each metric in `life`, whose part has no block.

    Return the number of metrics over each limit, and the numbers of those that were accepted.
    `before` is the seq of the part's last snapshot; the caller has marked its rows dirty. A snapshot that is not newer
    than that only replaces metrics that later snapshots lack.
    """
    seen: set[MetricId] = set()
    over_limit: Counter[str] = Counter()
    accepted: list[int] = []
    has_other_blocks = any(part != snapshot.part for part in life.blocks)
    for metric, found in zip(snapshot.metrics, stored(snapshot.metrics), strict=True):
        if isinstance(found, ValueError):
            refused.add_metric(found, partial(_json, metric))
            continue
        metric_id = (snapshot.app, *identity(metric.name, metric.type, metric.tags))
        if metric_id in seen:
            refused.add_metric("the snapshot has this metric twice", partial(_json, metric))
            continue
        seen.add(metric_id)
        number = lives.numbers.of(metric_id)
        row = life.rows.get(number)
        if row is None and has_other_blocks:
            row = lives.layouts.row(life, number)
        if row is None:
            limit = lives.exceeded_limit(life, metric_id, number)
            if limit is not None:
                over_limit[limit] += 1
                continue
            if number < 0:  # only now: a refused metric does not count
                number = lives.add_metric(metric_id)
            lives.add_row(life, number, Row(snapshot.part, snapshot.seq, *found))
        elif row.part != snapshot.part:
            moved = f"the metric was in part {row.part} of this life and is now in part {snapshot.part}"
            refused.add_metric(moved, partial(_json, metric))
            continue
        else:
            reason = _replace_row(lives, life, snapshot, number, found, before=before)
            if reason is not None:
                refused.add_metric(reason, partial(_json, metric))
                continue
        accepted.append(number)
    return over_limit, accepted


def _replace_row(
    lives: Lives, life: Life, snapshot: Snapshot, number: int, found: Stored, *, before: int
) -> str | None:
    """Replace the values and the sketch of a row and return None, or return why they are refused.

    The result does not depend on the order of snapshots: of all of them, the one with the highest count and then the
    highest seq gives the values, and every one of them widens extremes and positions.
    """
    row, kind, (values, sketch) = life.rows[number], lives.state.metrics[number][2], found
    if row.seq == before < snapshot.seq and not count_falls(kind, row.values, values):  # the usual case
        merged = merge_values(kind, row.values, values)
        lives.sums.replace_current(life, (number,), [(row.values, row.sketch)], [(merged, sketch)])
        row.seq, row.sketch, row.values = snapshot.seq, sketch, merged
        return None
    is_newer = snapshot.seq > row.seq
    fell = is_newer and count_falls(kind, row.values, values)
    if fell or not (is_newer or count_falls(kind, values, row.values)):
        seq, sketch, merged = row.seq, row.sketch, merge_values(kind, values, row.values)
    else:
        seq, merged = snapshot.seq, merge_values(kind, row.values, values)
    is_newest, is_changed = snapshot.seq > before, (seq, merged) != (row.seq, row.values)
    if is_newest and seq == snapshot.seq and not life.complete:
        lives.sums.replace_current(life, (number,), [(row.values, row.sketch)], [(merged, sketch)])
    elif is_changed or (is_newest and row.seq == before and life.complete):  # it was current, and is no longer
        lives.sums.mark_dirty(life, (number,))
    if is_changed:
        row.seq, row.sketch, row.values = seq, sketch, merged
    return f"the count fell within a life, from {row.values[0]!r} to {values[0]!r}" if fell else None


def _json(metric: Metric) -> str:
    return msgspec.json.encode(metric).decode()


class RecordApplier:
    """Applies snapshots, records of the short form, tombstones and forget records to the lives.

    `run_limit` is the highest value of the short form that may follow the last record in a run (`Table.apply_record`).
    A caller sets it to -1 before a record.
    """

    def __init__(self, lives: Lives, settings: TableSettings) -> None:
        self._lives = lives
        self._settings = settings
        self.run_limit = -1

    def apply_snapshot(self, instance: str, message: DecodedSnapshot, record: Record, refused: RecordRefusals) -> None:
        """Apply a snapshot to its part of its life, unless it is too late or too early (rule 3), or stale (rule 1)."""
        snapshot = message.snapshot
        life = self._life_of(instance, snapshot, record)
        if isinstance(life, Refusal):
            refused.add(life)
            return
        self._lives.unstored.add(life.id)
        life.keep_ms = max(life.keep_ms, record.clock_ms)
        before = life.parts.get(snapshot.part, 0)
        if not before and (limit := self._lives.add_part(life)):
            refused.add(self._refuse_over_limit(life, limit, "a new part", record))
            self._lives.rows.change(life, min(life.parts))  # its limits and time have changed
            return
        if snapshot.seq <= before:
            self._apply_stale(life, message, record)
            return
        refused.add_decoded(message.rejected, message.more_rejected)
        self._replace(life, message, record, before, refused)
        if message.over_limit:
            what = f"{message.over_limit} metrics"
            refused.add(self._refuse_over_limit(life, METRICS_PER_RECORD, what, record))

    def apply_baseline(self, instance: str, snapshot: Snapshot) -> None:
        """Leave the values of a snapshot that was applied out of the sums: they are from before its stream began.

        Of several values of a metric, the highest count is left out. The order of the records makes no difference.
        """
        life = self._lives.instances.find(snapshot.app, instance, snapshot.life)
        if life is None or life.complete:  # the snapshot was refused
            return
        seen: set[MetricId] = set()
        for metric in snapshot.metrics:
            metric_id = (snapshot.app, *identity(metric.name, metric.type, metric.tags))
            number = self._lives.numbers.of(metric_id)
            if metric_id in seen or self._lives.layouts.row(life, number) is None:  # it was refused
                continue
            seen.add(metric_id)
            values = stored_values(metric)
            if is_above(values, life.baselines.get(number)):
                self._lives.set_baseline(life, number, values)

    def _life_of(self, instance: str, snapshot: Snapshot, record: Record) -> Life | Refusal:
        """Return the life of a snapshot, which may be new, or why the snapshot is refused."""
        reason = out_of_bounds(snapshot, record.timestamp_ms)
        if reason is not None:
            return Refusal(reason)
        life = self._lives.instances.find(snapshot.app, instance, snapshot.life)
        if life is None:
            # Its first record may arrive again until a day after that.
            keep_ms = max(record.clock_ms, ulid_ms(snapshot.life))
            new = Life(instance, snapshot.app, snapshot.life, "", 0, 0, keep_ms, complete=snapshot.complete)
            return self._add_life(new, record, snapshot.seq)
        if life.complete != snapshot.complete:
            return Refusal("complete: the earlier snapshots of this life have the other value")
        return life

    def _add_life(self, life: Life, record: Record, seq: int = 0) -> Life | Refusal:
        """Add a new life and return it, or return why it is refused. It is not known, so this is an event each time."""
        parts = int(life.life != SHORT_FORM_LIFE)
        limit = self._lives.size.exceeded_limit(life.app, size_of_life(life.instance, life.app, parts))
        if limit is None:
            return self._lives.add(life, record, seq)
        return self._refuse_over_limit(life, limit, "a new life", record)

    def _replace(
        self, life: Life, message: DecodedSnapshot, record: Record, before: int, refused: RecordRefusals
    ) -> None:
        """Make a snapshot the newest of its part. `before` is the seq of the one before."""
        lives, snapshot = self._lives, message.snapshot
        if life.living == snapshot.final:
            lives.set_living(life, living=not snapshot.final)
        as_block = replace_block(lives, life, snapshot)
        if not as_block:
            lives.will_change(life)
            lives.blocks_to_rows(life, (snapshot.part,))
            if life.complete:
                # Rule 9: a row whose metric is missing or refused is no longer current, which changes rates and gauges.
                current = (n for n, row in life.rows.items() if row.part == snapshot.part and row.seq == before)
                lives.sums.mark_dirty(life, current)
        lives.set_last_seen(life, record, snapshot.every_ms)
        life.final = snapshot.final
        lives.include(life, snapshot.part, record, message.value if as_block else None)
        lives.instances.set_seq(life, snapshot.part, snapshot.seq)
        if as_block:
            return
        over_limits, numbers = replace_all(lives, life, snapshot, before, refused)
        has_all = life.complete or len(life.rows) <= len(numbers)  # else the next one would turn the block into rows
        if MIN_METRICS <= len(numbers) == len(snapshot.metrics) and has_all:
            lives.rows_to_block(life, snapshot.part, numbers)
        for limit, number in over_limits.items():
            refused.add(self._refuse_over_limit(life, limit, f"{number} metrics", record))

    def _apply_stale(self, life: Life, message: DecodedSnapshot, record: Record) -> None:
        """Ignore a stale snapshot, unless newer ones may lack metrics of it.

        They may if it is incomplete, or from another partition than the newest one of its part. Then add these metrics.
        """
        self._lives.state.stale += 1
        part = message.snapshot.part
        if life.partition == record.partition_name and part in life.offsets:
            self._lives.include(life, part, record)
            if life.complete:
                return
        else:  # the part gets no offset of this partition, so the next stale snapshot adds its metrics, too
            self._lives.rows.change(life, part)
        self._lives.will_change(life)
        self._lives.blocks_to_rows(life, (part,))
        replace_all(self._lives, life, message.snapshot, life.parts[part], RecordRefusals(0))

    def _refuse_over_limit(self, life: Life, limit: str, what: str, record: Record) -> Refusal:
        """Return one refusal for what is over a limit."""
        self._lives.add_limit_event(life, limit, record)
        return refuse_over_limit(limit, what, self._settings)

    def apply_short_form(self, instance: str, message: ShortForm, record: Record, refused: RecordRefusals) -> None:
        """Apply a counter of the short form. A value below the last one is a restart: the last one stays in the sum."""
        life = self._lives.instances.find(DEFAULT_APP, instance, SHORT_FORM_LIFE)
        if life is None:
            added = self._add_life(Life(instance, DEFAULT_APP, SHORT_FORM_LIFE, "", 0, 0, record.clock_ms), record)
            if isinstance(added, Refusal):
                refused.add(added)
                return
            life = added
        self._lives.will_change(life)
        self._lives.set_last_seen(life, record, self._settings.short_form_every_ms)
        self._lives.include(life, 0, record)
        life.keep_ms = max(life.keep_ms, record.clock_ms)
        if not life.living:
            self._lives.set_living(life, living=True)
        metric_id = (DEFAULT_APP, *identity(message.name, message.type, message.tags))
        number, value = self._lives.numbers.of(metric_id), message.value
        row = life.rows.get(number)
        total, last = (0, 0) if row is None else row.values
        if row is None:
            limit = self._lives.exceeded_limit(life, metric_id, number)
            if limit is not None:
                refused.add(self._refuse_over_limit(life, limit, "1 metrics", record))
                return
        restarted = value < last  # type: ignore[operator]  # both are whole numbers
        total = total + value - (0 if restarted else last)  # type: ignore[operator]
        if total > MAX_COUNT:
            refused.add(Refusal("the sum over this counter's restarts leaves 64 bits"))
            return
        if number < 0:
            number = self._lives.add_metric(metric_id)
        if restarted:
            self._lives.add_event("restart", life, record, message.name)
        new = Row(0, 0, (total, value))
        if row is None:
            self._lives.add_row(life, number, new)
        else:
            self._lives.sums.mark_dirty(life, (number,))
            life.rows[number] = new
        self.run_limit = MAX_COUNT - (total - value)  # type: ignore[assignment]  # whole numbers

    def apply_tombstone(self, instance: str, record: Record, forget: Forget | None = None) -> None:
        """Remove the rows of an instance's lives (rule 10). Lives of snapshots stay as markers of their seqs.

        With `forget`, the content of a forget record, only the lives that it names lose their rows. Sums of forgotten
        lives stay.
        """
        lives = self._lives
        for life in lives.instances.filled(instance, forget, record.clock_ms):
            lives.will_change(life)
            lives.blocks_to_rows(life)
            if life.rows:
                lives.add_event("tombstone" if forget is None else "forget", life, record)
            lives.remove_rows(life, life.rows)
            lives.instances.set_living(life, living=False)
            for part in life.parts or (0,):
                lives.include(life, part, record)
            if life.life == SHORT_FORM_LIFE:
                lives.delete(life)
            else:
                lives.instances.note_emptied(life)
