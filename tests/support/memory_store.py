"""A store in memory for the log of a table."""

from __future__ import annotations

from tallystream_aggregator.table.disk import MemoryChunks


class MemoryStore:
    """`tallystream_aggregator.table.storage.Store` in memory."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.entries: dict[int, bytes] = {}
        self.chunks = MemoryChunks()

    def head(self) -> bytes | None:
        """Return the newest head."""
        return self.heads[-1] if self.heads else None

    def set_head(self, head: bytes) -> None:
        """Replace the head."""
        self.heads = [head]

    def entry(self, number: int) -> bytes | None:
        """Return an entry, or None if there is none."""
        return self.entries.get(number)

    def add(self, number: int, entry: bytes) -> None:
        """Add an entry."""
        self.entries[number] = entry

    def clear(self) -> None:
        """Remove the entries, not the head."""
        self.entries.clear()

    def chunk(self, number: int) -> bytes | None:
        """Return a chunk of lives on disk, or None if there is none."""
        return self.chunks.chunk(number)

    def set_chunk(self, number: int, chunk: bytes | None) -> None:
        """Set a chunk; None removes it."""
        self.chunks.set_chunk(number, chunk)
