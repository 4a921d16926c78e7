"""The second stage of a table with several shards as a Spark stateful processor, around `table.combiners`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tallystream_aggregator.initial_state import read_initial_state
from tallystream_aggregator.spark.gc_pause import gc_paused
from tallystream_aggregator.spark.query.processor import COLUMNS, SHARD_OUTPUT_TOPIC, Row, SparkStore, batch_id, frames
from tallystream_aggregator.table.combiners import CombinerGroup, StoredGroup, load, unpack
from tallystream_aggregator.table.shards import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

    from tallystream_aggregator.kafka.topics import Topics

_SHARD = b'["shard",'

_in_memory: dict[tuple[str, int], StoredGroup] = {}
"""(name of `metrics-agg`, combiner) → the group as this process last stored it."""


class CombineProcessor(StatefulProcessor):
    """Emits the rows of `metrics-agg` from the shards' partial sums of its group of metrics, and passes on other rows.

    A shard's own record on `metrics-table` comes after all other rows of that shard. A group without a state begins
    with its state in the file `initial_state`, if there is one.

    Delivery: as `tallystream_aggregator.spark.query.processor.TableProcessor`.
    """

    def __init__(
        self,
        topics: Topics,
        *,
        epoch: int,
        shards: int,
        initial_state: Path | None = None,
        batch_id: Callable[[], int] = batch_id,
    ) -> None:
        self._topics = topics
        self._epoch = epoch
        self._shards = shards
        self._initial_state = initial_state
        self._batch_id = batch_id

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the group's log."""
        self._store = SparkStore(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[pd.DataFrame]:
        """Combine the shards' partial sums of a batch."""
        with gc_paused():
            out = self._apply(int(key[0]), rows)
        yield from frames(out, *COLUMNS)

    def close(self) -> None:
        """Nothing is held open between batches."""

    def _apply(self, combiner: int, rows: Iterator[Any]) -> list[Row]:
        shard_sums, out, last = [], list[Row](), list[Row]()
        for chunk in rows:
            for topic, key_, value, partition, writer in zip(*(chunk[name] for name in COLUMNS), strict=True):
                if topic != SHARD_OUTPUT_TOPIC:
                    of_shard = topic == self._topics.table and key_.startswith(_SHARD)
                    (last if of_shard else out).append((topic, key_, value, partition, writer))
                elif value is not None:
                    shard_sums.append(decode(value))
        out += self._combine(combiner, shard_sums)
        return [*out, *last]

    def _combine(self, combiner: int, shard_sums: list[Any]) -> list[Row]:
        cached = (self._topics.agg, combiner)
        stored = _in_memory.pop(cached, None)
        if stored is None or not stored.log.is_current(self._store):
            stored = load(self._store, lambda: self._begin(combiner))
        if not shard_sums and stored.group.published:
            _in_memory[cached] = stored
            return []
        stored.group.update(shard_sums)
        totals = stored.group.changes()
        stored.save(self._store)
        _in_memory[cached] = stored
        return [(self._topics.agg, total.key(), total.value(), 0, None) for total in totals]

    def _begin(self, combiner: int) -> CombinerGroup:
        if self._initial_state is not None:
            return unpack(read_initial_state(self._initial_state, shards=self._shards).combined[combiner])
        return CombinerGroup()
