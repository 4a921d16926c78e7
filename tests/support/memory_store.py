"""A log's store in memory."""

from __future__ import annotations


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.entries: dict[int, bytes] = {}
        self.chunks: dict[int, bytes] = {}

    def head(self) -> bytes | None:
        """The newest head."""
        return self.heads[-1] if self.heads else None

    def set_head(self, head: bytes) -> None:
        """Replace the head."""
        self.heads = [head]

    def entry(self, number: int) -> bytes | None:
        """An entry, None where there is none."""
        return self.entries.get(number)

    def add(self, number: int, entry: bytes) -> None:
        """Add an entry."""
        self.entries[number] = entry

    def clear(self) -> None:
        """Remove the entries, not the head."""
        self.entries.clear()

    def chunk(self, number: int) -> bytes | None:
        """Return a chunk of lives on disk, None where there is none."""
        return self.chunks.get(number)

    def set_chunk(self, number: int, chunk: bytes | None) -> None:
        """Set a chunk; None removes it."""
        if chunk is None:
            self.chunks.pop(number, None)
        else:
            self.chunks[number] = chunk
