"""A loop as a Spark stateful processor: one call runs the loop for an epoch, and stores the state at its end.

Spark runs this module in two kinds of Python processes: in those of the tasks, and in one that only asks for the names
of the states when a query starts, which the start waits for. So it imports little, and the task is unpickled where it
runs.
"""

from __future__ import annotations

import ctypes
import gc
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

    from tallystream_aggregator.stream.epochs import EpochRow
    from tallystream_aggregator.table.storage import Store

    Run = Callable[[int, Store], EpochRow]
    """Runs the loop with a number for an epoch, and stores its state."""

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""The function of glibc that returns free memory to the system. Other C libraries have none."""

# Not DDL text: Python would call Spark's JVM to parse it in each batch.
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
        """Add an entry, or replace it."""
        self._entries.updateValue((number,), (entry,))

    def remove(self, number: int) -> None:
        """Remove an entry."""
        self._entries.removeKey((number,))

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()


class EpochProcessor(StatefulProcessor):
    """Calls `run` in each batch, and returns one row with its `EpochRow` as JSON.

    Delivery: that of `stream.loop.ShardLoop`. It does not depend on Spark: a batch that runs twice, or in two places,
    publishes nothing twice.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def __getstate__(self) -> bytes:
        """Return the pickled function."""
        return cloudpickle.dumps(self._run)  # type: ignore[no-any-return, no-untyped-call]

    def __setstate__(self, pickled: bytes) -> None:
        """Unpickle the function when it is called."""

        def run(number: int, store: Store) -> EpochRow:
            return cloudpickle.loads(pickled)(number, store)  # type: ignore[no-any-return]

        self._run = run

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the shard's log."""
        self._store = SparkStore(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[pd.DataFrame]:
        """Run the loop with the number `key` for an epoch."""
        for _ in rows:
            pass  # the tick
        # The table has millions of objects and no cycles. So nothing is collected while the loop runs. What is there at
        # the end is frozen, as PySpark's worker collects after each task. What is free goes back to the system: the
        # records of an epoch leave a hundred megabytes between those that stay.
        gc.disable()
        row = self._run(int(key[0]), self._store)
        gc.collect()
        gc.freeze()
        if _malloc_trim is not None:
            _malloc_trim(0)
        # Not at the top: the process that asks for the states needs no pandas, whose import takes 0.3 s.
        import pandas as pd

        yield pd.DataFrame({"epoch": [msgspec.json.encode(row).decode()]})

    def close(self) -> None:
        """Nothing is held open for Spark between epochs."""
