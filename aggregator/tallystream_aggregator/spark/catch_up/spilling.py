"""The values of a batch's records: in memory up to a limit in bytes, in a temporary file beyond it.

Spark's Kafka source limits a batch by records, not by bytes, and a batch has to be complete before its records can be
put in order: 50,000 records of 1 MiB are more than a worker's memory.
"""

from __future__ import annotations

import tempfile
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from tallystream_aggregator.table.decode import Record

IN_MEMORY_BYTES = 64 << 20
"""Keys and values of a batch that stay in memory, in bytes."""


class Spill:
    """Holds back values: `put` each record of a batch, `load` each one when it is its turn. A context manager."""

    def __init__(self, in_memory_bytes: int = IN_MEMORY_BYTES) -> None:
        self._left = in_memory_bytes
        self._file: IO[bytes] | None = None
        self._places: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._end = 0

    def put(self, record: Record) -> Record:
        """Return the record, without its value where that is in the file.

        Raises:
            OSError: the file could not be written.
        """
        size = len(record.key or b"") + len(record.value or b"")
        if record.value is None or size <= self._left:
            self._left -= size
            return record
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        self._file.write(record.value)
        self._places[record.topic, record.partition, record.offset] = (self._end, len(record.value))
        self._end += len(record.value)
        return record._replace(value=None)

    def load(self, record: Record) -> Record:
        """Return the record with its value.

        Raises:
            OSError: the file could not be read.
        """
        place = self._places.get((record.topic, record.partition, record.offset)) if self._file is not None else None
        if place is None or self._file is None or record.value is not None:
            return record
        self._file.seek(place[0])
        return record._replace(value=self._file.read(place[1]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
