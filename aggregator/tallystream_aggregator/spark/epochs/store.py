"""The log of a table in Spark's state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, LongType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

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
