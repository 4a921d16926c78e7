"""The changelog table as a Spark stateful processor: a thin shell around `table.table` and `table.storage`.

A Python worker caches the tables of the shards that it has processed. Spark may send the next batch to another worker,
or run a batch again. The head of the log tells whether the cached table is the stored one; otherwise the table is read.
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from tallystream_aggregator.initial_state import read_initial_state
from tallystream_aggregator.repair_request import read_request
from tallystream_aggregator.spark.catch_up.encoding import Spill, records_of
from tallystream_aggregator.spark.gc_pause import gc_paused
from tallystream_aggregator.table.compaction import ExpansionNeededError
from tallystream_aggregator.table.restore.republish import Republish
from tallystream_aggregator.table.rows import ShardRow
from tallystream_aggregator.table.shards import encode, group_of, shards_of
from tallystream_aggregator.table.state import State, StateVersionError, unpack
from tallystream_aggregator.table.storage import StoredTable, load
from tallystream_aggregator.table.sum_tags import SumTags
from tallystream_aggregator.table.table import run_batch, run_expanded
from tallystream_aggregator.versions import deletion_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.table.compaction import Span
    from tallystream_aggregator.table.decode import Record
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.table import Changes

log = logging.getLogger(__name__)

# Not DDL text: Python would call Spark's JVM to parse it, six times in each batch.
_NUMBER = StructType([StructField("number", LongType())])
_PACKED = StructType([StructField("packed", BinaryType())])


class SparkStore:
    """`tallystream_aggregator.table.storage.Store` over the state of the key that Spark is handling.

    Delivery: the next batch sees the changes of a batch if, and only if, that batch was committed.
    """

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("table", _PACKED)
        self._entries = handle.getMapState("log", _NUMBER, _PACKED)

    def head(self) -> bytes | None:
        """Return the head."""
        stored = self._head.get()
        return None if stored is None else bytes(stored[0])

    def set_head(self, head: bytes) -> None:
        """Replace the head."""
        self._head.update((head,))

    def entry(self, number: int) -> bytes | None:
        """Return an entry."""
        stored = self._entries.getValue((number,))
        return None if stored is None else bytes(stored[0])

    def add(self, number: int, entry: bytes) -> None:
        """Add an entry."""
        self._entries.updateValue((number,), (entry,))

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()


OUTPUT = "topic string, key binary, value binary, partition int, writer binary"
SHARD_OUTPUT = f"combiner int, {OUTPUT}"
SHARD_OUTPUT_TOPIC = ""
"""The value of the column `topic` in rows with a shard's partial sums, which are only for a combiner."""
COLUMNS = ("topic", "key", "value", "partition", "writer")
"""The columns of `OUTPUT`. `partition` is the shard for rows of `metrics-table`, and 0 for all other rows.

`writer` is the value of a deletion's header (tallystream_aggregator.versions), null for all other rows.
"""
Row = tuple[str, bytes | None, bytes | None, int, bytes | None]
_in_memory: dict[tuple[str, int], StoredTable] = {}
"""(name of `metrics-table`, shard) → the table as this process last stored it."""
_repaired: dict[tuple[str, int], tuple[int, int, int]] = {}
"""(name of `metrics-table`, shard) → (epoch, number, batch) of the request that this process last carried out."""


def batch_id() -> int:
    """Return the number of this task's batch, as in Spark's checkpoint.

    Raises:
        RuntimeError: this is not a task of a streaming query.
    """
    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if number is None:
        raise RuntimeError("the number of the batch is only known in a task of a streaming query")
    return int(number)


MAX_FRAME_BYTES = 8 << 20
"""The approximate limit of the keys and values in one frame, in bytes. Spark's JVM has the whole frame in memory."""


def frames(rows: Iterable[tuple[Any, ...]], *columns: str) -> Iterator[pd.DataFrame]:
    """Yield rows as data frames, at least one, as Spark expects them from a stateful processor."""
    # Not at the top: Spark imports this module in another Python process when a query starts. That process needs no
    # pandas, whose import takes 0.3 s.
    import pandas as pd

    frame, size = list[tuple[Any, ...]](), 0
    for row in rows:
        if size >= MAX_FRAME_BYTES:
            yield pd.DataFrame(frame, columns=list(columns), dtype=object)
            frame, size = [], 0
        frame.append(row)
        size += sum(len(cell) for cell in row if isinstance(cell, bytes))
    yield pd.DataFrame(frame, columns=list(columns), dtype=object)


def import_modules(numbers: Iterable[int]) -> Iterable[int]:
    """Import what a task of the query needs, beside this module, and return `numbers`."""
    import pandas  # noqa: F401, ICN001
    import pyspark.sql.streaming.stateful_processor_api_client  # noqa: F401

    return numbers


class TableProcessor(StatefulProcessor):
    """Keeps one shard's table and emits rows of `metrics-agg`, `metrics-table`, `metrics-events` and `metrics-dead`.

    With several `shards`, it emits the shard's partial sums instead of sums. Each row then has the number of a
    combiner, which takes the partial sums and passes on all other rows (spark.query.combiner). `sum_tags` are the tags
    that the sums have, and `since` is the epoch in which a new table began.

    A shard without a state begins with its state in the file `initial_state`, which a rebuild wrote, if there is one.
    `reread` reads the records of a span again if their compaction has to be undone. `repair` is the file with the keys
    to be published again (jobs.aggregate.repair), None for never.

    Delivery: at least once, with absolute values: a batch that runs again writes the same sums under the same
    (epoch, batch), or under a higher epoch.
    """

    def __init__(
        self,
        topics: Topics,
        settings: TableSettings,
        *,
        epoch: int,
        shards: int = 1,
        sum_tags: SumTags = SumTags(),  # noqa: B008 (it is frozen)
        since: int = 0,
        initial_state: Path | None = None,
        repair: Path | None = None,
        reread: Callable[[Span], Iterable[Record]] | None = None,
        batch_id: Callable[[], int] = batch_id,
    ) -> None:
        self._topics = topics
        self._settings = settings
        self._epoch = epoch
        self._shards = shards
        self._sum_tags = sum_tags
        self._since = since
        self._initial_state = initial_state
        self._repair = repair
        self._reread = reread
        self._batch_id = batch_id

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the shard's log."""
        self._store = SparkStore(handle)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,
    ) -> Iterator[pd.DataFrame]:
        """Apply the records of a batch, which may come in any order of chunks."""
        with gc_paused(), Spill() as spill:
            records = [spill.put(record) for chunk in rows for record in records_of(chunk)]
            rows_out, columns = self._run(int(key[0]), records, spill.load)
        yield from frames(rows_out, *columns)

    def close(self) -> None:
        """Nothing is held open between batches."""

    def _run(
        self, shard: int, records: list[Record], with_value: Callable[[Record], Record]
    ) -> tuple[Iterable[tuple[Any, ...]], Sequence[str]]:
        """Run a batch of a shard, and return the rows for Spark with the names of their columns."""
        cached = (self._topics.table, shard)
        stored = _in_memory.pop(cached, None)  # if the batch fails, the table must be read again
        if stored is None or not stored.log.is_current(self._store):
            stored = self._load(shard)
        if stored.table.state.shards != self._shards:
            raise StateVersionError(
                f"state: shard {shard} is one of {stored.table.state.shards}, and the file CHECKPOINT.sharding says "
                f"{self._shards}; restore that file, or run tallystream rebuild for a new checkpoint."
            )
        if stored.table.state.sum_tags != self._sum_tags:
            raise StateVersionError(
                f"state: shard {shard} has {stored.table.state.sum_tags}, and the file CHECKPOINT.sharding says "
                f"{self._sum_tags}; restore that file, or run tallystream rebuild for a new checkpoint."
            )
        is_new = not stored.table.state.published
        number = self._batch_id()
        republish, repaired = self._requested(shard, number)
        in_memory: StoredTable | None = stored

        def run(records: Sequence[Record]) -> Changes:
            nonlocal stored, in_memory
            stored, in_memory = in_memory or self._load(shard), None
            try:
                return run_batch(stored.table, records, load=with_value, republish=republish)
            except ExpansionNeededError as needed:
                log.warning("%s: %s", self._topics.metrics, needed)
                raise

        changes = run_expanded(records, run, lambda span: self._reread_span(span, shard))
        stored.save(self._store)
        rows = self._rows(changes, shard, number, state_bytes=stored.log.size, repaired=repaired)
        _in_memory[cached] = stored
        if self._shards == 1:
            return rows, COLUMNS
        return chain(self._output_rows(changes, is_new=is_new), ((shard, *row) for row in rows)), ("combiner", *COLUMNS)

    def _reread_span(self, span: Span, shard: int) -> Iterator[Record]:
        """Return the records of a span that are the shard's. Those of other shards must not advance its clock."""
        if self._reread is None:
            raise RuntimeError("records were compacted, and can't be read again")
        topics = self._settings.otlp_topics
        return (record for record in self._reread(span) if shard in shards_of(record, self._shards, topics))

    def _load(self, shard: int) -> StoredTable:
        return load(self._store, self._settings, lambda: self._begin(shard))

    def _begin(self, shard: int) -> State:
        if self._initial_state is not None:
            return unpack(read_initial_state(self._initial_state, shards=self._shards).shards[shard])
        return State(shard=shard, shards=self._shards, sum_tags=self._sum_tags, since=self._since)

    def _output_rows(self, changes: Changes, *, is_new: bool) -> list[tuple[int, *Row]]:
        # A rebuilt table publishes all its sums again, so every group of combiners must run.
        every = range(self._shards) if is_new else ()
        shard_sums = [
            (group_of(one.metric, self._shards), SHARD_OUTPUT_TOPIC, None, encode(one), 0, None)
            for one in changes.shard_sums
        ]
        return [*((combiner, SHARD_OUTPUT_TOPIC, None, None, 0, None) for combiner in every), *shard_sums]

    def _requested(self, shard: int, batch: int) -> tuple[Republish | None, int]:
        """Return the keys to be published again in this batch, and the number of the last request that was carried out.

        A batch that runs again publishes them again; a later one does not.
        """
        request = None if self._repair is None else read_request(self._repair)
        if request is None or request.epoch != self._epoch:
            return None, 0
        cached = self._topics.table, shard
        epoch, number, done = _repaired.get(cached, (0, 0, 0))
        if (epoch, number) == (request.epoch, request.number) and done != batch:
            return None, number
        _repaired[cached] = (request.epoch, request.number, batch)
        return Republish(request.table.get(shard, []), request.sums), request.number

    def _rows(self, changes: Changes, shard: int, number: int, *, state_bytes: int, repaired: int) -> Iterator[Row]:
        """Yield the rows one by one: all values together may take much memory."""
        epoch, topics = self._epoch, self._topics
        for published in changes.rows:
            if isinstance(published.row, ShardRow):
                published.row.state_bytes, published.row.repaired = state_bytes, repaired
        writer = deletion_header((epoch, number))
        for letter in changes.dead:
            yield topics.dead, letter.key(), letter.value(), 0, None
        for event in changes.events:
            yield topics.events, event.key(), event.value(), 0, None
        for total in changes.totals:
            yield topics.agg, total.key(), total.value(), 0, None
        for row in changes.rows:
            value = row.value(epoch=epoch, batch=number)
            yield topics.table, row.key, value, shard, writer if row.row is None else None
