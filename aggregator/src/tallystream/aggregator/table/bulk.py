"""Compact many records at a time: what one by one would keep, for a quarter of the work where they are of a kind.

Records of the short form that differ from others in numbers alone are read as columns of numbers (0020). What makes a
run is looked for in all of them at once; what does not look like a run is taken one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow.compute as pc

from tallystream.aggregator.table.columns import Columns
from tallystream.aggregator.table.compaction import Compactor
from tallystream.aggregator.table.numbers import numbers
from tallystream.aggregator.table.runs import Runs, find_runs, running_max
from tallystream.aggregator.table.shapes import Shapes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tallystream.aggregator.table.chunk import Chunk
    from tallystream.aggregator.table.inputs import Record
    from tallystream.aggregator.table.series import Run
    from tallystream.aggregator.table.settings import TableSettings
    from tallystream.reporter.record import Identity

PIECE = 16_000
"""Records whose values are looked for at a time: what a core's cache holds of them."""

STRETCH = 500_000
STRETCH_BYTES = 64 << 20
"""Records, or bytes, in which runs are looked for at a time: what bounds memory."""

LONG = 512
"""Bytes of a record, in the mean, beyond which these are snapshots: there is nothing to gain for them."""

_OTHER = -1
"""In the place of a metric: a record that is to be read by itself."""


class _Piece(NamedTuple):
    """Records, and of each the number of its key, of its metric, and the value."""

    columns: Columns
    key: NDArray[np.int64]
    metric: NDArray[np.int64]
    value: NDArray[np.int64]


class BulkCompactor:
    """Compacts the records of one partition, which come in offset order, for a table in `shards`; used once."""

    def __init__(self, topic: str, partition: int, settings: TableSettings, shards: int = 1) -> None:
        self._singly = Compactor(topic, partition, settings, shards)
        self._settings = settings
        self._shapes = Shapes()
        self._begin()

    def _begin(self) -> None:
        self._unread: list[Columns] = []
        self._pieces: list[_Piece] = []
        self._waiting = self._unread_records = self._bytes = 0
        self._keys: dict[bytes | None, int] = {}
        self._metrics: dict[Identity, int] = {}

    def add(self, chunk: Chunk) -> list[Record]:
        """Take records, and return those of which it is known by now that they are kept, in no order that matters.

        Raises:
            ValueError: they are more than `STRETCH`.
        """
        if len(chunk.offsets) > STRETCH:
            raise ValueError(f"{len(chunk.offsets)} records at a time; {STRETCH} at most are taken")
        if not chunk.offsets:
            return []
        columns = Columns.of(chunk)
        if columns.values.nbytes > LONG * len(chunk.offsets):
            return [*self._settle(), *self._singly.add(chunk.rows())]
        self._unread.append(columns)
        self._unread_records += len(chunk.offsets)
        self._waiting += len(chunk.offsets)
        self._bytes += columns.values.nbytes
        if self._unread_records >= PIECE:
            self._read()
        return self._settle() if self._waiting >= STRETCH or self._bytes >= STRETCH_BYTES else []

    def end(self) -> list[Record]:
        """Return what still waits: the records have ended."""
        return [*self._settle(), *self._singly.end()]

    def _read(self) -> None:
        """Find the keys, the metrics and the values of a piece."""
        columns = Columns.joined(self._unread)
        self._unread, self._unread_records = [], 0
        coded = columns.keys.dictionary_encode(null_encoding="encode")
        keys = [self._keys.setdefault(key, len(self._keys)) for key in coded.dictionary.to_pylist()]
        key = np.array(keys, np.int64)[coded.indices.to_numpy()]
        found = numbers(columns.values)
        counts = np.bincount(found.text[found.found], minlength=len(found.texts))
        metrics = self._shapes.metrics(found.texts, counts.tolist())
        metric = np.array([_OTHER if one is None else self._number(one) for one in metrics], np.int64)[found.text]
        length = pc.fill_null(pc.binary_length(columns.values), 0).to_numpy()
        metric[~found.found | (length > self._settings.max_record_bytes)] = _OTHER
        self._pieces.append(_Piece(columns, key, metric, found.value))

    def _number(self, metric: Identity) -> int:
        return self._metrics.setdefault(metric, len(self._metrics))

    def _settle(self) -> list[Record]:
        """Compact what waits."""
        if self._unread:
            self._read()
        if not self._pieces:
            return []
        columns = Columns.joined([piece.columns for piece in self._pieces])
        key = np.concatenate([piece.key for piece in self._pieces])
        metric = np.concatenate([piece.metric for piece in self._pieces])
        value = np.concatenate([piece.value for piece in self._pieces])
        instances = [self._singly.instance(key) for key in self._keys]
        metrics = list(self._metrics)
        self._begin()

        clock = running_max(columns.at_ms, np.array([one.shard for one in instances])[key], self._singly.clocks)
        # Of an instance that has a record of another kind, it matters in which order all of them came.
        odd = np.array([not one.readable for one in instances])
        odd[key[metric == _OTHER]] = True
        runs = find_runs(key * max(1, len(metrics)) + metric, value, np.flatnonzero(~odd[key]))
        singly = np.concatenate([np.flatnonzero(odd[key]), runs.rest])
        kept: list[Record] = []
        for of, at, row in zip(key[singly].tolist(), clock[singly].tolist(), columns.take(singly).rows(), strict=True):
            kept += self._singly.take(instances[of], row, at)
        named = zip(key[runs.first].tolist(), metric[runs.first].tolist(), strict=True)
        followed = [self._singly.counter(instances[of], metrics[name]) for of, name in named]
        kept += self._follow(columns, clock, value, runs, followed)
        return [*kept, *self._singly.bounded()]

    def _follow(
        self, columns: Columns, clock: NDArray[np.int64], value: NDArray[np.int64], runs: Runs, followed: list[Run]
    ) -> list[Record]:
        """Let each of `followed` go on with the records of one of `runs`, or begin anew with their first one."""
        kept: list[Record] = []
        firsts = value[runs.first].tolist()
        anew = np.array([first < run.value for first, run in zip(firsts, followed, strict=True)], bool)
        begins = columns.take(runs.first[anew]).rows()
        for new, first, at, run in zip(anew.tolist(), firsts, clock[runs.first].tolist(), followed, strict=True):
            if new:
                kept += self._singly.begin(run, next(begins), at, first)
        more = runs.length - anew
        goes_on = more > 0
        last, going = runs.last[goes_on], (run for run, on in zip(followed, goes_on.tolist(), strict=True) if on)
        ends = zip(columns.take(last).rows(), clock[last].tolist(), value[last].tolist(), strict=True)
        for run, (row, at, number), records in zip(going, ends, more[goes_on].tolist(), strict=True):
            run.follow(row, at, number, records)
        return kept
