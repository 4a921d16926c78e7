"""How a snapshot or a record of the short form changes the rows of its life: rules 1 to 4, 9 and 11."""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tallystream.record import DEFAULT_APP, MAX_COUNT, TIMELY_MS, ShortForm, identity
from tallystream.ulid import ulid_ms
from tallystream_aggregator.table.arithmetic.values import (
    Stored,
    count_falls,
    merge_values,
    replaces,
    stored,
)
from tallystream_aggregator.table.layouts import MIN_METRICS, metric_count
from tallystream_aggregator.table.limits import METRICS_PER_RECORD
from tallystream_aggregator.table.lives import SHORT_FORM_LIFE
from tallystream_aggregator.table.records.refusals import RecordRefusals, Refusal
from tallystream_aggregator.table.state import Life, Row

if TYPE_CHECKING:
    from tallystream.record import Metric, Snapshot
    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.life_rows import LifeRows
    from tallystream_aggregator.table.records.decode import DecodedSnapshot, Record


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


def apply_snapshot(
    rows: LifeRows, instance: str, message: DecodedSnapshot, record: Record, refused: RecordRefusals
) -> None:
    """Apply a snapshot, which is neither too late nor too early, to its part of a life, unless it is stale (rule 1)."""
    snapshot = message.snapshot
    life = _life_of(rows, instance, snapshot, record)
    if isinstance(life, Refusal):
        refused.add(life)
        return
    rows.lives.will_change(life)
    life.keep_ms = max(life.keep_ms, record.clock_ms)
    before = life.parts.get(snapshot.part, 0)
    if life.parts and not before and (limit := rows.add_part(life)):
        refused.add(rows.refuse(life, limit, "a new part", record))
        rows.records.change(life, min(life.parts))  # its limits and time have changed
    elif snapshot.seq <= before:
        _apply_stale(rows, life, message, record)
    else:
        if message.rejected:
            refused.add_decoded(message.rejected, message.more_rejected)
        _apply_newer(rows, life, message, record, refused)
        if message.over_limit:
            what = f"{message.over_limit} metrics"
            refused.add(rows.refuse(life, METRICS_PER_RECORD, what, record))


def apply_short_form(rows: LifeRows, instance: str, message: ShortForm, record: Record, refused: RecordRefusals) -> int:
    """Apply a counter of the short form. A value below the last one is a restart: the last one stays in the sum.

    Return the highest value that may follow it in a run (`Table.apply_record`).
    """
    life = rows.lives.find(DEFAULT_APP, instance, SHORT_FORM_LIFE)
    if life is None:
        added = rows.add_life(
            Life(
                instance,
                DEFAULT_APP,
                SHORT_FORM_LIFE,
                partition=record.partition_name,
                last_seen_ms=record.clock_ms,
                every_ms=rows.settings.short_form_every_ms,
                keep_ms=record.clock_ms,
            ),
            record,
        )
        if isinstance(added, Refusal):
            refused.add(added)
            return -1
        life = added
    rows.lives.will_change(life)
    rows.set_last_seen(life, record, rows.settings.short_form_every_ms)
    rows.include(life, 0, record)
    life.keep_ms = max(life.keep_ms, record.clock_ms)
    if not life.living:
        rows.sums.set_living(life, living=True)
    metric_id = (DEFAULT_APP, *identity(message.name, message.type, message.tags))
    number, value = rows.metrics.of(metric_id), message.value
    row = life.rows.get(number)
    total, last = (0, 0) if row is None else row.values
    restarted = value < last  # type: ignore[operator]  # both are whole numbers
    total = total + value - (0 if restarted else last)  # type: ignore[operator]
    if total > MAX_COUNT:
        refused.add(Refusal("the sum over this counter's restarts leaves 64 bits"))
        return -1
    if restarted:
        rows.add_event("restart", life, record, message.name)
    new = Row(0, 0, (total, value))
    if row is None:
        taken = rows.add(life, metric_id, number, new)
        if isinstance(taken, str):
            refused.add(rows.refuse(life, taken, "1 metrics", record))
            return -1
    else:
        rows.sums.will_change(life, (number,))
        life.rows[number] = new
    return MAX_COUNT - (total - value)  # type: ignore[return-value]  # whole numbers


def _life_of(rows: LifeRows, instance: str, snapshot: Snapshot, record: Record) -> Life | Refusal:
    """Return the life of a snapshot, which may be new, or why the snapshot is refused."""
    life = rows.lives.find(snapshot.app, instance, snapshot.life)
    if life is None:
        # Its first record may arrive again until a day after that.
        new = Life(
            instance,
            snapshot.app,
            snapshot.life,
            partition=record.partition_name,
            last_seen_ms=record.clock_ms,
            every_ms=snapshot.every_ms,
            keep_ms=max(record.clock_ms, ulid_ms(snapshot.life)),
            complete=snapshot.complete,
        )
        return rows.add_life(new, record, snapshot.seq)
    if life.complete != snapshot.complete:
        return Refusal("complete: the earlier snapshots of this life have the other value")
    return life


def _apply_newer(rows: LifeRows, life: Life, message: DecodedSnapshot, record: Record, refused: RecordRefusals) -> None:
    """Take what a life has from the last snapshot of a part out of the sums, and put in what this one has."""
    snapshot, part = message.snapshot, message.snapshot.part
    is_new = not life.parts
    if not is_new:
        rows.set_last_seen(life, record, snapshot.every_ms)
    life.final = snapshot.final
    if life.living == life.final:
        rows.sums.set_living(life, living=not life.final)
    as_block = not message.is_baseline and (
        rows.add_block(life, part, message.metrics) if is_new else replace_block(rows, life, message)
    )
    if not as_block:
        rows.blocks_to_rows(life, (part,))
        if life.complete:
            # Rule 9: a row whose metric is missing or refused is no longer current, which changes rates and gauges.
            last = life.parts.get(part, 0)
            rows.sums.will_change(life, (n for n, row in life.rows.items() if row.part == part and row.seq == last))
        over_limits, numbers = replace_rows(rows, life, message, refused)
        has_all = life.complete or len(life.rows) <= len(numbers)  # else the next one would turn it into rows
        if MIN_METRICS <= len(numbers) == len(message.metrics) and has_all:
            rows.rows_to_block(life, part, numbers)
        for limit, number in over_limits.items():
            refused.add(rows.refuse(life, limit, f"{number} metrics", record))
    life.offsets[part] = record.offset
    rows.records.change(life, part, message.value if as_block else None)
    rows.lives.set_seq(life, part, snapshot.seq)


def _apply_stale(rows: LifeRows, life: Life, message: DecodedSnapshot, record: Record) -> None:
    """Ignore a stale snapshot, unless newer ones may lack metrics of it.

    They may if it is incomplete, or from another partition than the newest one of its part. Then add these metrics.
    """
    rows.state.stale += 1
    part = message.snapshot.part
    if life.partition == record.partition_name and part in life.offsets:
        rows.include(life, part, record)
        if life.complete:
            return
    else:  # the part gets no offset of this partition, so the next stale snapshot adds its metrics, too
        rows.records.change(life, part)
    rows.blocks_to_rows(life, (part,))
    replace_rows(rows, life, message, RecordRefusals(0))


def replace_block(rows: LifeRows, life: Life, message: DecodedSnapshot) -> bool:
    """Replace the block of a part, and the rows beside it, by the values of a newer snapshot as they are. Return True.

    Return False and change no value if that can't be: the part has no block, the snapshot has other metrics, a metric
    is refused or was not current, a count is lower, or an extreme is narrower.
    """
    part, seq = message.snapshot.part, message.snapshot.seq
    block = life.blocks.get(part)
    layout = None if block is None else rows.layouts.layout_for(block)
    counts = None if layout is None else layout.counts(message.metrics)
    if block is None or layout is None or counts is None:
        return False
    after = None if life.baselines or layout.columns is None else layout.distributions_of(message.metrics)
    if layout.has_columns == (after is None):
        rows.change_columns(life, part, to_rows=after is None)
        layout = rows.layouts.layout_for(block)
        counts = layout.counts(message.metrics) or []
        after = after if layout.has_columns else None
    differences, before = list(map(operator.sub, counts, layout.unpack(block.counts))), block.distributions
    if differences and min(differences) < 0:
        return False
    if layout.columns and before and after and not layout.columns.widens(before, after):
        return False
    if layout.others:
        others = [life.rows[number] for number in layout.others]
        old = [(row.values, row.sketch) for row in others]
        new = list(stored(layout.others_of(message.metrics)))
        are_current = {row.seq for row in others} == {life.parts[part]}
        if not are_current or not all(map(replaces, layout.kinds_of_others, old, new)):
            return False
        rows.sums.replace_current(life, layout.others, old, new)  # type: ignore[arg-type]  # none is refused
        for row, (values, sketch) in zip(others, new, strict=True):  # type: ignore[misc]  # none is refused
            row.seq, row.sketch, row.values = seq, sketch, values
    rows.sums.replace_block(life, layout, differences, before, after)
    block.counts, block.distributions = layout.pack(*counts), after
    return True


def replace_rows(
    rows: LifeRows, life: Life, message: DecodedSnapshot, refused: RecordRefusals
) -> tuple[dict[str, int], list[int]]:
    """Replace the row of each metric in `life`, whose part has no block and still has the seq of its newest snapshot.

    Return the number of metrics over each limit, and the numbers of those that were accepted. A snapshot that is not
    newer only replaces metrics that later snapshots lack.
    """
    snapshot, is_baseline = message.snapshot, message.is_baseline
    seen: set[MetricId] = set()
    over_limit: dict[str, int] = {}
    accepted: list[int] = []
    in_blocks = metric_count(life) - len(life.rows)
    metrics = list(message.metrics)
    for metric, found in zip(metrics, stored(metrics), strict=True):
        if isinstance(found, ValueError):
            refused.add_metric(found, partial(_json, metric))
            continue
        metric_id = (snapshot.app, *identity(metric.name, metric.type, metric.tags))
        if metric_id in seen:
            refused.add_metric("the snapshot has this metric twice", partial(_json, metric))
            continue
        seen.add(metric_id)
        number = rows.metrics.of(metric_id)
        row = rows.layouts.row(life, number)
        if row is None:
            added = rows.add(life, metric_id, number, Row(snapshot.part, snapshot.seq, *found), in_blocks)
            if isinstance(added, str):
                over_limit[added] = over_limit.get(added, 0) + 1
                continue
            number, reason = added, None
        elif row.part != snapshot.part:
            reason = f"the metric was in part {row.part} of this life and is now in part {snapshot.part}"
        else:
            reason = _replace_row(rows, life, snapshot, number, found)
        if is_baseline:
            rows.leave_out(life, number, found[0])
        if reason is None:
            accepted.append(number)
        else:
            refused.add_metric(reason, partial(_json, metric))
    return over_limit, accepted


def _replace_row(rows: LifeRows, life: Life, snapshot: Snapshot, number: int, found: Stored) -> str | None:
    """Replace the values and the sketch of a row and return None, or return why they are refused.

    The result does not depend on the order of snapshots: of all of them, the one with the highest count and then the
    highest seq gives the values, and every one of them widens extremes and positions.
    """
    row, kind, (values, sketch) = life.rows[number], rows.state.metrics[number][2], found
    before = life.parts.get(snapshot.part, 0)
    if row.seq == before < snapshot.seq and not count_falls(kind, row.values, values):  # the usual case
        merged = merge_values(kind, row.values, values)
        rows.sums.replace_current(life, (number,), [(row.values, row.sketch)], [(merged, sketch)])
        row.seq, row.sketch, row.values = snapshot.seq, sketch, merged
        return None
    fell = count_falls(kind, row.values, values)  # of a stale snapshot, nobody is told
    if fell or (snapshot.seq <= row.seq and not count_falls(kind, values, row.values)):
        seq, sketch, merged = row.seq, row.sketch, merge_values(kind, values, row.values)
    else:
        seq, merged = snapshot.seq, merge_values(kind, row.values, values)
    is_changed = (seq, merged) != (row.seq, row.values)
    was_current = not life.complete or row.seq == before
    if was_current and (not life.complete or seq == max(before, snapshot.seq)):
        if is_changed or seq == snapshot.seq > before:
            rows.sums.replace_current(life, (number,), [(row.values, row.sketch)], [(merged, sketch)])
    elif was_current or is_changed:
        rows.sums.will_change(life, (number,))
    if is_changed:
        row.seq, row.sketch, row.values = seq, sketch, merged
    return f"the count fell within a life, from {row.values[0]!r} to {values[0]!r}" if fell else None


def _json(metric: Metric) -> str:
    return msgspec.json.encode(metric).decode()
