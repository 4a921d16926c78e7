"""The records of `metrics-table`: the table can be made again from them, and they are the view by instance.

There are three kinds of record. Each is absolute: a newer one replaces an older one of its key. The kind is the first
element of the key. (The fourth kind, the positions row, is that of the loop: stream.positions.)

    ["life", app, instance, life, part]            the newest values of one part of a life, until it is forgotten
    ["forgotten", shard, app, type, name, tags]    the sums of the forgotten lives of one metric
    ["shard", shard]                               clocks and offsets: the rows are an exact cut at these

A life is forgotten in one step: the sums of forgotten lives include it, and its rows are deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream.record import Sketch
from tallystream_aggregator.table.arithmetic.metric_types import STORED, Value, Values
from tallystream_aggregator.table.arithmetic.partial_sums import StoredPartialSum
from tallystream_aggregator.table.sum_tags import SumTags

if TYPE_CHECKING:
    from tallystream_aggregator.table.arithmetic.partial_sums import ForgottenSums
    from tallystream_aggregator.table.state import Life, MetricId, Row, State

MAX_ROW_BYTES = 30 * 1024 * 1024
"""The largest list of metrics in a record. If it is larger, the record has only the number of its metrics."""


class MetricRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One metric of a life. Its type determines which values are set. `last` is the newest value of the short form.

    `seq` is set if the part's newest snapshot lacks the metric, and is that of the last snapshot that had it.
    """

    name: str
    type: str
    tags: dict[str, str] = {}
    seq: int | None = None
    count: int | None = None
    last: int | None = None
    value: int | float | None = None
    sum: int | float | None = None
    min: int | float | None = None
    max: int | float | None = None
    mean_rate: int | float | None = None
    m1_rate: int | float | None = None
    m5_rate: int | float | None = None
    m15_rate: int | float | None = None
    start: int | None = None
    position: int | None = None
    sketch: Sketch | None = None


class LifeRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One part of a life, as of input offset `offset`. Times are in epoch ms of the partition's clock.

    `last_seen_ms` is the last record that was applied, `keep_ms` the last one of any seq.
    `complete` tells whether the life's snapshots have all
    metrics of a part. `omitted` is the number of metrics that are left out because the record would be too large.
    """

    v: int = 1
    app: str
    instance: str
    life: str
    part: int
    seq: int = 0
    topic: str
    partition: int
    offset: int
    last_seen_ms: int
    every_ms: int
    keep_ms: int
    final: bool = False
    living: bool = False
    complete: bool = True
    limits: list[str] = []
    omitted: int = 0
    metrics: list[MetricRow] = []


class ForgottenRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The sums of one metric over `lives` forgotten lives. `held` are their partial sums."""

    v: int = 1
    app: str
    name: str
    type: str
    tags: dict[str, str] = {}
    lives: int
    held: StoredPartialSum


class ShardRow(msgspec.Struct, kw_only=True):
    """The progress of a shard of a table with this number of `shards`.

    `clocks` and `offsets` map "topic:partition" → epoch ms, and → the last offset included.

    Counts since the table began: `records`, `stale` ones among them, `dead` letters, `forgotten` lives. Present counts:
    `lives`, `living` ones, `instances` of living ones, `rows`, `metrics` (identities).
    `sum_tags` are the tags that the sums have.
    """

    v: int = 1
    shard: int = 0
    shards: int = 1
    clocks: dict[str, int]
    offsets: dict[str, int]
    stale: int
    records: int = 0
    dead: int = 0
    forgotten: int = 0
    lives: int = 0
    living: int = 0
    instances: int = 0
    rows: int = 0
    metrics: int = 0
    sum_tags: SumTags = SumTags()


class LifeNumbers(NamedTuple):
    """The lives, the living ones among them, the instances that have one of these, and the rows."""

    lives: int
    living: int
    instances: int
    rows: int


class TableRecord(NamedTuple):
    """A record of `metrics-table`. If `row` is None, the record is deleted."""

    key: bytes
    row: LifeRow | ForgottenRow | ShardRow | None

    def value(self) -> bytes | None:
        """The record's value, None for a deletion."""
        return None if self.row is None else _encode(self.row)


_json = msgspec.json.Encoder()


def _encode(row: LifeRow | ForgottenRow | ShardRow) -> bytes:
    body = _json.encode(row)
    return body if body.startswith(b'{"v":') else b'{"v":1,' + body[1:]


def life_key(life: Life, part: int) -> bytes:
    """Return the key of one part of a life."""
    return _json.encode(["life", life.app, life.instance, life.life, part])


def life_row(life: Life, part: int, rows: str, number: int) -> TableRecord:
    """Return the record of one part of a life, with its rows as JSON (`metric_json`, with commas between them)."""
    topic, _, partition = life.partition.rpartition(":")
    seq = life.parts.get(part, 0)
    row = LifeRow(
        app=life.app,
        instance=life.instance,
        life=life.life,
        part=part,
        seq=seq,
        topic=topic,
        partition=int(partition),
        offset=life.offsets.get(part, -1),
        last_seen_ms=life.last_seen_ms,
        every_ms=life.every_ms,
        keep_ms=life.keep_ms,
        final=life.final,
        living=life.living,
        complete=life.complete,
        limits=list(life.limits),
    )
    metrics = f"[{rows}]".encode()
    if len(metrics) > MAX_ROW_BYTES:
        row.omitted = number
    elif number:
        row.metrics = msgspec.Raw(metrics)  # type: ignore[assignment]  # is written as it is
    return TableRecord(life_key(life, part), row)


def forgotten_row(shard: int, metric: MetricId, forgotten_sums: ForgottenSums) -> TableRecord:
    """Return the record of a shard's sums of forgotten lives of a metric."""
    app, name, type_, tags = metric
    row = ForgottenRow(
        app=app,
        name=name,
        type=type_,
        tags=dict(tags),
        lives=forgotten_sums.lives,
        held=forgotten_sums.stored,
    )
    return TableRecord(_json.encode(["forgotten", shard, app, type_, name, tags]), row)


def shard_row(state: State, counts: LifeNumbers) -> TableRecord:
    """Return the record with the progress of the shard and the numbers of its lives."""
    row = ShardRow(
        shard=state.shard,
        shards=state.shards,
        clocks=dict(state.clocks),
        offsets=dict(state.offsets),
        stale=state.stale,
        records=state.records,
        dead=state.dead,
        forgotten=state.forgotten,
        lives=counts.lives,
        living=counts.living,
        instances=counts.instances,
        rows=counts.rows,
        metrics=len(state.metrics),
        sum_tags=state.sum_tags,
    )
    return TableRecord(_json.encode(["shard", state.shard]), row)


def fields(kind: str, values: Values) -> tuple[str, ...]:
    """Return the names of a row's values. A counter of the short form has `last` besides those of a snapshot."""
    return STORED[kind] if len(values) == len(STORED[kind]) else (*STORED[kind], "last")


def metric_json(metric: MetricId, row: Row, seq: int) -> str:
    """Return a metric of a part as JSON. `seq` is that of the part's newest snapshot."""
    _, name, type_, tags = metric
    values: dict[str, Value] = dict(zip(fields(type_, row.values), row.values, strict=True))
    own_seq = None if row.seq == seq else row.seq
    metric_row = MetricRow(name=name, type=type_, tags=dict(tags), seq=own_seq, **values)  # type: ignore[arg-type]  # by type
    if row.sketch is not None:
        metric_row.sketch = msgspec.Raw(row.sketch)  # type: ignore[assignment]  # is written as it is
    return _json.encode(metric_row).decode()
