"""Publish keys of `metrics-table` again from the state: what the topic has of them may be a replaced writer's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.table.rows import Published, base_row, fold_rows, life_key
from tallystream_aggregator.table.shards import shard_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.table.lives import Lives
    from tallystream_aggregator.table.state import Life, LifeId, MetricId

_encode = msgspec.json.Encoder().encode
_decode_key = json_decoder(list[object])
_decode_sum = json_decoder(tuple[str, str, str, tuple[tuple[str, str], ...]])


def republish(lives: Lives, keys: Iterable[bytes]) -> list[Published]:
    """Return the records of bases and lists with these keys, and deletions of keys that the state does not have.

    Lives, in memory or on disk, are marked: `lives.take_published` returns their records. The shard's own record is in
    every batch.
    """
    found = {key: _row(lives, key) for key in keys}
    return [row for row in found.values() if row is not None]


def metric_of(key: bytes) -> MetricId | None:
    """Return the metric that a key of `metrics-agg` names, None where it is no key of a sum."""
    try:
        app, type_, name, tags = _decode_sum(key)
    except msgspec.DecodeError:
        return None
    return app, name, type_, tags


def _row(lives: Lives, key: bytes) -> Published | None:
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
        case ["base", int(shard), *name] if shard == state.shard:
            metric = metric_of(_encode(name))
            number = -1 if metric is None else lives.known(metric)
            if metric is not None and number in state.base:
                row = base_row(shard, metric, state.base[number])
        case ["fold", int(shard), int(fold), int(chunk)] if shard == state.shard:
            rows = fold_rows(shard, fold, state.lists.get(fold, []))
            row = rows[chunk] if 0 <= chunk < len(rows) else None
    return row if row is not None and row.key == key else Published(key, None)


def _is_absent(lives: Lives, name: LifeId, part: int, key: bytes) -> bool:
    """Tell whether the shard has to delete the record of a part of a life; mark the part where the shard has it."""
    state = lives.state
    app, instance, life = name
    if any(_name(gone.life) == name for gone in state.deleting):
        return False  # The next batch deletes it: not before the bases, which this batch writes.
    leaving = [gone.life for gone in state.leaving if _name(gone.life) == name]
    if not leaving and shard_of(instance.encode(), state.shards) != state.shard:
        return False  # Another shard's row: here it does not count, or until that shard has written its own.
    on_disk = lives.disk.find(instance, app, life)
    known = [one for one in lives.of(instance) if _name(one) == name]
    for one in [*leaving, *known, *([] if on_disk is None else [on_disk])]:
        if (part in (one.parts or (0,)) or part in one.places) and life_key(one, part) == key:
            lives.publish(one, part)
            return False
    return True


def _name(life: Life) -> LifeId:
    return life.app, life.instance, life.life
