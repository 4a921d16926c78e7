"""A store in memory for the log of a table."""

from __future__ import annotations

from tallystream_aggregator.table import State, Table, TableSettings
from tallystream_aggregator.table.storage import StoredTable, load


class MemoryStore:
    """`tallystream_aggregator.table.storage.Store` in memory."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.entries: dict[int, bytes] = {}

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

    def remove(self, number: int) -> None:
        """Remove an entry."""
        del self.entries[number]

    def clear(self) -> None:
        """Remove the entries, not the head."""
        self.entries.clear()


def stored_table(store: MemoryStore, settings: TableSettings) -> StoredTable:
    """Return the table that is stored, or an empty one."""
    return load(store, settings) or StoredTable(Table(State(), settings))
