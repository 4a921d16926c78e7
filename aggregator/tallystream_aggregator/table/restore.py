"""Make the state again from the records of `metrics-table`, after a loss or to change the number of shards.

The rows are an exact cut: they include the records up to the offsets in the record of their shard, and no others.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import TallystreamError
from tallystream.record import identity
from tallystream_aggregator.table.arithmetic.partial_sums import dec_hook
from tallystream_aggregator.table.arithmetic.values import stored, stored_values
from tallystream_aggregator.table.layouts import MIN_METRICS, Layouts, text_bytes
from tallystream_aggregator.table.records.decode import shard_of
from tallystream_aggregator.table.rows import OF_SHARD, ForgottenRow, LifeRow, ShardRow
from tallystream_aggregator.table.state import Life, LifeId, Row, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.sum_tags import SumTags

TableRow = LifeRow | ForgottenRow | ShardRow

_KINDS: dict[bytes, Callable[[bytes], TableRow]] = {
    b'["life"': json_decoder(LifeRow),
    b'["forgotten"': json_decoder(ForgottenRow, dec_hook),
    b'["shard"': json_decoder(ShardRow),
}
"""The begin of the keys of each kind of record."""

_LIFE = b'["life",'
_decode_life_key = json_decoder(tuple[str, str, str, str, int])


class RebuildError(TallystreamError):
    """The topic has no table that can be made again."""


class LatestRows:
    """The newest record of each key in each partition. Add them in offset order."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, bytes], bytes] = {}
        """(partition, key) → value"""

    def add(self, key: bytes, value: bytes | None, partition: int = 0) -> None:
        """Add one record. A null value deletes that of its key."""
        if value is None:
            self.rows.pop((partition, key), None)
        else:
            self.rows[partition, key] = value


class Rebuilt(NamedTuple):
    """The states of the shards, and the lives whose rows were too large to publish."""

    states: list[State]
    omitted: list[LifeId]


def restore(latest: LatestRows, *, shards: int | None = None, sum_tags: SumTags | None = None) -> Rebuilt:
    """Return the states that `latest` has the rows of, and take the rows of lives out of it.

    A row is decoded when its life is made, and then dropped: all of them would take several times as much as the table.

    `shards` splits the table into more shards than it has; all of its shards must be at the same positions then.
    `sum_tags` are the tags that the sums have from now on, None for those that they have.

    Raises:
        RebuildError: there are no rows; or a record is not one of the table's, or belongs to none of its shards.
    """
    rows: dict[int, ShardRow] = {}
    sums: list[ForgottenRow] = []
    parts: dict[LifeId, list[tuple[int, bytes]]] = defaultdict(list)
    for (partition, key), value in latest.rows.items():
        if key.startswith(_LIFE):
            parts[_life_of(partition, key)].append((partition, key))
            continue
        row = read_row(partition, key, value)
        if isinstance(row, ShardRow):
            rows[row.shard] = row
        elif isinstance(row, ForgottenRow):
            sums.append(row)
    if not rows:
        raise RebuildError("metrics-table: it has no rows, so there is nothing to make the table from.")
    one_of = next(iter(rows.values()))
    new = shards or one_of.shards
    tags = one_of.sum_tags if sum_tags is None else sum_tags
    builders = [_ShardBuilder(_state(rows.get(shard), one_of, shard, new, tags)) for shard in range(new)]
    for one in sums:
        if not 0 <= one.shard < new:
            raise RebuildError(f"metrics-table: forgotten sums of shard {one.shard}; the table has {new} shards.")
        builders[one.shard].add_forgotten(one)
    omitted: list[LifeId] = []
    for life, keys in sorted(parts.items(), key=lambda item: (item[0][2], item[0])):  # ULIDs sort by time
        found = [read_row(*at, latest.rows.pop(at)) for at in keys]
        builders[shard_of(life[1].encode(), new)].add_life(keys, found)
        if any(row.omitted for row in found):
            omitted.append(life)
    return Rebuilt([one.state for one in builders], omitted)


def read_row(partition: int, key: bytes, value: bytes) -> Any:
    """Return a row from its key and value.

    Raises:
        RebuildError: it is not one of the table's.
    """
    try:
        return _KINDS[key.partition(b",")[0]](value)
    except (msgspec.DecodeError, KeyError) as error:
        raise _no_row(partition, key, error) from error


def _life_of(partition: int, key: bytes) -> LifeId:
    try:
        _, *life, _ = _decode_life_key(key)
    except msgspec.DecodeError as error:
        raise _no_row(partition, key, error) from error
    return (life[0], life[1], life[2])


def _no_row(partition: int, key: bytes, error: Exception) -> RebuildError:
    return RebuildError(
        f"metrics-table: {key[:200]!r} is not a record of the table ({error}); if no aggregator wrote it, delete "
        f"it by a record with its key and no value in partition {partition}."
    )


def _state(row: ShardRow | None, one_of: ShardRow, shard: int, shards: int, tags: SumTags) -> State:
    """Return the state of a shard without its lives. A shard without a row is new: it is where the others are."""
    of = one_of if row is None else row
    counted = {} if row is None else {name: getattr(row, name) for name in OF_SHARD}
    own = {"clocks": dict(of.clocks), "offsets": dict(of.offsets), "shard": shard, "shards": shards, "sum_tags": tags}
    return State(**(counted | own))


_COMMON = ("app", "instance", "life", "last_seen_ms", "every_ms", "keep_ms", "final", "living", "complete")
"""Fields of a `LifeRow` that a `Life` has, too."""


class _ShardBuilder:
    """Builds the state of a shard from its rows."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._numbers: dict[MetricId, int] = {}
        self._layouts = Layouts(state.metrics)

    def add_forgotten(self, row: ForgottenRow) -> None:
        """Add the sums of the forgotten lives of one metric."""
        metric = (row.app, *identity(row.name, row.held.kind, row.tags))
        self.state.forgotten_sums[self._number_of(metric)] = row.held

    def add_life(self, keys: list[tuple[int, bytes]], parts: list[LifeRow]) -> None:
        """Add a life. `keys` are those of its parts, with their partitions.

        Raises:
            RebuildError: the table can't have made one of them.
        """
        try:
            self._add_life(parts)
        except ValueError as error:
            raise _no_row(*keys[0], error) from error

    def _add_life(self, parts: list[LifeRow]) -> None:
        # All parts have the life's present partition, so the newest record of it is that with the highest offset.
        newest = max(parts, key=lambda row: row.offset)
        life = Life(
            partition=f"{newest.topic}:{newest.partition}",
            parts={row.part: row.seq for row in parts if row.seq},
            rows={number: row for part in parts for number, row in self._rows(part)},
            limits=sorted({limit for row in parts for limit in row.limits}),
            offsets={row.part: row.offset for row in parts if row.offset >= 0},
            **{name: getattr(newest, name) for name in _COMMON},
        )
        life.keep_ms = max(row.keep_ms for row in parts)
        life.bytes = sum(text_bytes(self.state.metrics[number]) for number in life.rows)
        life.baselines = {
            self._number_of((row.app, *metric.identity)): stored_values(metric)
            for row in parts
            for metric in row.baselines
        }
        current: defaultdict[int, list[int]] = defaultdict(list)
        for number, row in life.rows.items():
            if row.seq == life.parts.get(row.part):
                current[row.part].append(number)
        for part, numbers in current.items():
            if len(numbers) >= MIN_METRICS:
                self._layouts.rows_to_block(life, part, numbers)
        self.state.lives.setdefault(life.instance, {})[life.name] = life

    def _rows(self, part: LifeRow) -> Iterable[tuple[int, Row]]:
        if not part.life and len(part.last) != len(part.metrics):
            raise ValueError("it is of the short form, and lacks newest values")
        for place, (metric, found) in enumerate(zip(part.metrics, stored(part.metrics), strict=True)):
            if isinstance(found, ValueError):
                raise found
            values, sketch = found
            number = self._number_of((part.app, *metric.identity))
            yield (
                number,
                Row(part.part, part.older.get(place, part.seq), (*values, *part.last[place : place + 1]), sketch),
            )

    def _number_of(self, metric: MetricId) -> int:
        """Return the number of a metric. A new metric gets the next number."""
        number = self._numbers.get(metric)
        if number is None:
            number = self._numbers[metric] = len(self.state.metrics)
            self.state.metrics[number] = metric
        return number
