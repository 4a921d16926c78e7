"""A shard's log in Spark's state: the head is its one value, the entries a map by number, and so are lives on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, LongType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

# Not as text, which Spark's JVM would be asked to read, six times in each batch.
_NUMBER = StructType([StructField("number", LongType())])
_PACKED = StructType([StructField("packed", BinaryType())])


class SparkStore:
    """`tallystream_aggregator.table.storage.Store` over the state of the key that Spark is handling.

    Delivery: what is added and set in a batch is there for the next one if, and only if, the batch was committed.
    """

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("table", _PACKED)
        self._entries = handle.getMapState("log", _NUMBER, _PACKED)
        self._chunks = handle.getMapState("disk", _NUMBER, _PACKED)

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

    def chunk(self, number: int) -> bytes | None:
        """Return a chunk of lives on disk."""
        stored = self._chunks.getValue((number,))
        return None if stored is None else bytes(stored[0])

    def set_chunk(self, number: int, chunk: bytes | None) -> None:
        """Set a chunk; None removes it."""
        if chunk is None:
            self._chunks.removeKey((number,))
        else:
            self._chunks.updateValue((number,), (chunk,))
