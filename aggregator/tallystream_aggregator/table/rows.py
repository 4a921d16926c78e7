"""The records of `metrics-table`: the table can be made again from them, and they are the view by instance.

There are three kinds of record. Each is absolute: a newer one replaces an older one of its key. The kind is the first
element of the key. (The fourth kind, the positions row, is that of the loop: stream.positions.)

    ["life", app, instance, life, part]            the newest values of one part of a life, until it is forgotten
    ["forgotten", shard, app, type, name, tags]    the sums of the forgotten lives of one metric
    ["shard", shard]                               clocks and offsets: the rows are an exact cut at these

A life is forgotten in one step: the sums of forgotten lives include it, and its rows are deleted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from tallystream.metric_types import NAMES
from tallystream.record import Metric
from tallystream_aggregator.table.arithmetic.partial_sums import PartialSum, enc_hook
from tallystream_aggregator.table.limits import MAX_SHARDS
from tallystream_aggregator.table.state import Row
from tallystream_aggregator.table.sum_tags import SumTags

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.layouts import Layout, Layouts
    from tallystream_aggregator.table.state import Block, Life, State

MAX_ROW_BYTES = 30 * 1024 * 1024
"""The largest list of metrics in a record. If it is larger, the record has only the number of its metrics."""


Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
PartitionName = Annotated[str, msgspec.Meta(pattern=r":[0-9]{1,9}\Z")]


class _Versioned(msgspec.Struct, kw_only=True, tag_field="v", tag=1):
    """A row begins with its version, 1."""


class LifeRow(_Versioned, omit_defaults=True, kw_only=True):
    """One part of a life, as of input offset `offset`. Times are in epoch ms of the partition's clock.

    `last_seen_ms` is the last record that was applied, `keep_ms` the last one of any seq.
    `complete` tells whether the life's snapshots have all metrics of a part.

    `baselines` are the values that sums leave out, because they are from before a stream of OTLP began.

    `metrics` are the newest values, in the form of the record. `older` maps the place of a metric that the newest
    snapshot lacks → the seq of the last snapshot that had it. `last` has the newest values of the short form, whose
    counts are those of all its runs. `omitted` is the number of metrics that are left out because the record would be
    too large.
    """

    app: str
    instance: str
    life: str
    part: Number
    seq: Number = 0
    topic: str
    partition: Number
    offset: Whole
    last_seen_ms: Whole
    every_ms: Number
    keep_ms: Whole
    final: bool = False
    living: bool = False
    complete: bool = True
    limits: list[str] = []
    omitted: int = 0
    metrics: list[Metric] = []
    older: dict[Number, Number] = {}
    last: list[Number] = []
    baselines: list[Metric] = []


OF_SHARD = ("shard", "shards", "stale", "records", "dead", "forgotten", "sum_tags")
"""Fields of a `State` that the row of its shard has, too."""


class ForgottenRow(_Versioned, omit_defaults=True, kw_only=True):
    """A shard's sums of one metric over forgotten lives. `held` are their partial sums, which have its type."""

    shard: int
    app: str
    name: str
    tags: dict[str, str] = {}
    held: PartialSum


class ShardRow(_Versioned, kw_only=True):
    """The progress of a shard of a table with this number of `shards`.

    `clocks` and `offsets` map "topic:partition" → epoch ms, and → the last offset included.

    Counts since the table began: `records`, `stale` ones among them, `dead` letters, `forgotten` lives. Present counts:
    `lives`, `living` ones, `instances` of living ones, `rows`, `metrics` (identities).
    `sum_tags` are the tags that the sums have.
    """

    shard: Number = 0
    shards: Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARDS)] = 1
    clocks: dict[str, Whole]
    offsets: dict[PartitionName, Whole]
    stale: Number
    records: Number = 0
    dead: Number = 0
    forgotten: Number = 0
    lives: int = 0
    living: int = 0
    instances: int = 0
    rows: int = 0
    metrics: int = 0
    sum_tags: SumTags = SumTags()


class TableRecord(msgspec.Struct, gc=False):
    """A record of `metrics-table`. If `row` is None, the record is deleted."""

    key: bytes
    row: LifeRow | ForgottenRow | ShardRow | None

    def value(self) -> bytes | None:
        """The record's value, None for a deletion."""
        return None if self.row is None else _json.encode(self.row)


class _Metrics(msgspec.Struct):
    """The metrics of a snapshot as they are written."""

    metrics: msgspec.Raw


_decode_metrics = msgspec.json.Decoder(_Metrics).decode
_json = msgspec.json.Encoder(enc_hook=enc_hook)


class RowRecords:
    """The records of lives and forgotten sums that have changed since they were last taken."""

    def __init__(self, state: State, layouts: Layouts) -> None:
        self._state, self._layouts = state, layouts
        self._changed: dict[tuple[Life, int], bytes | None] = {}
        self._forgotten: dict[int, MetricId] = {}
        self._deleted: list[TableRecord] = []
        self.bytes = 0
        """The size of the records that are kept for them."""

    def __len__(self) -> int:
        """The number of parts of lives that have changed."""
        return len(self._changed)

    def change(self, life: Life, part: int, value: bytes | None = None) -> None:
        """Return the record of a part of a life with the next ones.

        `value` is a record with the snapshot whose metrics are the part's newest ones, as the table has them now.
        """
        key = life, part
        self.bytes += len(value or b"") - len(self._changed.get(key) or b"")
        self._changed[key] = value

    def change_all(self, lives: Iterable[Life]) -> None:
        """Return the records of all parts of these lives with the next ones."""
        for life in lives:
            for part in life.parts or (0,):
                self.change(life, part)

    def delete(self, life: Life) -> None:
        """Delete the records of a life that is removed with the next ones."""
        parts = sorted({*life.parts, *life.offsets} or {0})
        for part in parts:
            self.bytes -= len(self._changed.pop((life, part), None) or b"")
        self._deleted += [TableRecord(_life_key(life, part), None) for part in parts]

    def change_forgotten(self, number: int) -> None:
        """Return the record of the forgotten sums of a metric with the next ones."""
        self._forgotten[number] = self._state.metrics[number]

    def pop(self) -> list[TableRecord]:
        """Return the records, and clear the list."""
        of_parts = {life: _by_part(life) for life in {life for life, _ in self._changed} if len(life.parts) > 1}
        rows = [
            self._row(life, part, value, of_parts[life].get(part, {}) if life in of_parts else life.rows)
            for (life, part), value in self._changed.items()
        ]
        sums = [_forgotten_row(self._state, *one) for one in sorted(self._forgotten.items())]
        found = [*rows, *sums]
        if self._deleted:  # which may have begun again
            found = list({row.key: row for row in (*self._deleted, *found)}.values())
        self._deleted, self._changed, self._forgotten, self.bytes = [], {}, {}, 0
        return found

    def _row(self, life: Life, part: int, value: bytes | None, rows: Mapping[int, Row]) -> TableRecord:
        """Return the record of a part of a life, which has `rows`. Its metrics are in the order of their numbers."""
        metrics, seq, block = self._state.metrics, life.parts.get(part, 0), life.blocks.get(part)
        content: bytes | msgspec.Raw
        layout = None if block is None else self._layouts.layout_for(block)
        if layout is not None and len(rows) > len(layout.others):  # the newest snapshot lacks some
            rows = {**rows, **self._layouts.block_rows(life, part)}
            layout = None
        if layout is None or block is None:
            numbers = sorted(rows)
            content = _json.encode([_fields(metrics[number], rows[number]) for number in numbers])
        elif value is not None and layout.is_sorted and not life.baselines:
            numbers, content = layout.sorted, _decode_metrics(value).metrics  # a part of the value, not a copy
        else:
            numbers, content = layout.sorted, self._block_json(life, part, block, layout)
        found = _life_row(life, part)
        left_out = b""
        if life.baselines and not part:
            baselines = sorted(life.baselines.items())
            left_out = _json.encode([_fields(metrics[n], Row(part, seq, values)) for n, values in baselines])
            found.baselines = msgspec.Raw(left_out)  # type: ignore[assignment]  # written as it is
        if len(content) + len(left_out) > MAX_ROW_BYTES:
            found.omitted = len(numbers)
        elif numbers:
            found.metrics = msgspec.Raw(content)  # type: ignore[assignment]  # written as it is
            if older := {number: row.seq for number, row in rows.items() if row.seq != seq}:
                found.older = {at: older[number] for at, number in enumerate(numbers) if number in older}
            if not life.life:
                found.last = [rows[number].values[1] for number in numbers]  # type: ignore[misc]  # whole numbers
        return TableRecord(_life_key(life, part), found)

    def _block_json(self, life: Life, part: int, block: Block, layout: Layout) -> bytes:
        """Return the metrics of a block, and of the rows beside it, as a list in JSON."""
        counts = layout.unpack(block.counts)
        if not layout.not_counters:
            return layout.json(counts, ())
        rows = life.rows if block.distributions is None else self._layouts.column_rows(life, part) | life.rows
        metrics = self._state.metrics
        others = [_json.encode(_values(metrics[number][2], rows[number]))[1:-1] for number in layout.not_counters]
        return layout.json(counts[: len(layout.counters)], others)


def _life_key(life: Life, part: int) -> bytes:
    return _json.encode(["life", life.app, life.instance, life.life, part])


def _by_part(life: Life) -> dict[int, dict[int, Row]]:
    """Return the rows of a life by their part."""
    found: dict[int, dict[int, Row]] = {}
    for number, row in life.rows.items():
        found.setdefault(row.part, {})[number] = row
    return found


def _life_row(life: Life, part: int) -> LifeRow:
    """Return the row of one part of a life, without its metrics."""
    topic, partition = _topic_and_number(life.partition)
    return LifeRow(
        app=life.app,
        instance=life.instance,
        life=life.life,
        last_seen_ms=life.last_seen_ms,
        every_ms=life.every_ms,
        keep_ms=life.keep_ms,
        final=life.final,
        living=life.living,
        complete=life.complete,
        part=part,
        seq=life.parts.get(part, 0),
        topic=topic,
        partition=partition,
        offset=life.offsets.get(part, -1),
        limits=list(life.limits),
    )


@lru_cache(maxsize=10_000)
def _topic_and_number(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition(":")
    return topic, int(number)


def _forgotten_row(state: State, number: int, metric: MetricId) -> TableRecord:
    """Return the record of a shard's sums of forgotten lives of a metric, which deletes it if there are none."""
    app, name, kind, tags = metric
    held = state.forgotten_sums.get(number)
    row = None if held is None else ForgottenRow(shard=state.shard, app=app, name=name, tags=dict(tags), held=held)
    return TableRecord(_json.encode(["forgotten", state.shard, app, kind, name, tags]), row)


def shard_row(state: State, counts: dict[str, int]) -> TableRecord:
    """Return the record with the progress of the shard and the numbers of its lives, by field of `ShardRow`."""
    same: dict[str, Any] = {name: getattr(state, name) for name in OF_SHARD} | counts
    row = ShardRow(**same, clocks=dict(state.clocks), offsets=dict(state.offsets), metrics=len(state.metrics))
    return TableRecord(_json.encode(["shard", state.shard]), row)


def _fields(metric: MetricId, row: Row) -> dict[str, Any]:
    """Return the fields of a metric in the form of the record."""
    _, name, kind, tags = metric
    fields = {"type": kind, **_values(kind, row), "name": name}
    if tags:
        fields["tags"] = dict(tags)
    return fields


def _values(kind: str, row: Row) -> dict[str, Any]:
    """Return the fields of a metric that have its values."""
    pairs = zip(NAMES[kind], row.values, strict=False)  # the short form has one more
    fields: dict[str, Any] = {name: value for name, value in pairs if value is not None}
    if row.sketch is not None:
        fields["sketch"] = row.sketch
    return fields
