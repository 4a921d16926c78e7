"""Publish keys of `metrics-table` again from the state, because a replaced writer may have overwritten them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.table.rows import TableRecord, forgotten_row, life_key
from tallystream_aggregator.table.shards import shard_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_aggregator.table.lives import Lives
    from tallystream_aggregator.table.state import Life, LifeId, MetricId

_encode = msgspec.json.Encoder().encode
_decode_key = json_decoder(list[object])
_decode_sum = json_decoder(tuple[str, str, str, tuple[tuple[str, str], ...]])


class Republish(NamedTuple):
    """Keys of `metrics-table` and `metrics-agg` whose records are published again."""

    keys: Sequence[bytes]
    sums: Sequence[bytes]


def republish(lives: Lives, keys: Iterable[bytes]) -> list[TableRecord]:
    """Return the records of forgotten sums with these keys, and deletions of keys that the state lacks.

    Lives are only marked: `lives.pop_rows` returns their records. The shard's own record is
    published with every batch.
    """
    found = {key: _row(lives, key) for key in keys}
    return [row for row in found.values() if row is not None]


def metric_of(key: bytes) -> MetricId | None:
    """Return the metric in a key of `metrics-agg`, or None if it is not the key of a sum."""
    try:
        app, type_, name, tags = _decode_sum(key)
    except msgspec.DecodeError:
        return None
    return app, name, type_, tags


def _row(lives: Lives, key: bytes) -> TableRecord | None:
    try:
        parts = _decode_key(key)
    except msgspec.DecodeError:
        parts = []
    state, row = lives.state, None
    match parts:
        case ["shard", int(shard)] if shard == state.shard:
            return None
        case ["life", str(app), str(instance), str(life), int(part)]:
            if not _is_absent(lives, (app, instance, life), part, key):
                return None
        case ["forgotten", int(shard), *name] if shard == state.shard:
            metric = metric_of(_encode(name))
            number = -1 if metric is None else lives.number_of(metric)
            if metric is not None and number in state.forgotten_sums:
                row = forgotten_row(shard, metric, state.forgotten_sums[number])
    return row if row is not None and row.key == key else TableRecord(key, None)


def _is_absent(lives: Lives, name: LifeId, part: int, key: bytes) -> bool:
    """Tell whether the shard has to delete the record of a part of a life. If the shard has the part, mark it."""
    state, instance = lives.state, name[1]
    if shard_of(instance.encode(), state.shards) != state.shard:
        return False  # The row of another shard never counts here, or only until that shard has written its own.
    for one in lives.lives_of(instance):
        has_part = part in (one.parts or (0,)) or part in one.offsets
        if _name(one) == name and has_part and life_key(one, part) == key:
            lives.publish(one, part)
            return False
    return True


def _name(life: Life) -> LifeId:
    return life.app, life.instance, life.life
