"""The storage of a shard's table: a copy of the state, then a log with the changes of each epoch.

An epoch appends a state with the instances, forgotten sums and metrics that changed, and all small fields. An instance
without lives is removed. When the entries after the copy are as large as the copy, a new copy is made. So the average
cost depends on the changes, and the log is at most twice as large as the table. The head has a random token for the
last entry. A process whose table in memory has the same token continues without reading the log.
"""

from __future__ import annotations

import os
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Protocol

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream_aggregator.table.state import STATE_VERSION, State, damaged, pack, require_version, unpack
from tallystream_aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from tallystream_aggregator.table.limits import TableSettings

COPY_FLOOR = 262_144
"""Entries up to this many bytes do not cause a new copy, so a small table is rarely copied."""

MAX_ENTRIES = 500
"""The most entries after a copy, whatever their size: they are read one by one."""


class Store(Protocol):
    """The store of one log: a head, and entries by number."""

    def head(self) -> bytes | None:
        """Return the head, or None for a new log."""

    def set_head(self, head: bytes) -> None:
        """Replace the head."""

    def entry(self, number: int) -> bytes | None:
        """Return an entry, or None if there is none."""

    def add(self, number: int, entry: bytes) -> None:
        """Add an entry."""

    def clear(self) -> None:
        """Remove all entries."""


class Head(msgspec.Struct, array_like=True):
    """The head of a log: it has the entries `first` to `last`, and `token` identifies the last one.

    `copied` is the last entry of the copy. The copy has `copy_bytes`, the entries after it `entry_bytes`.
    """

    version: int = STATE_VERSION
    token: str = ""
    first: int = 0
    last: int = 0
    copied: int = 0
    copy_bytes: int = 0
    entry_bytes: int = 0


_decode_head = msgpack_decoder(Head)
_encode = msgspec.msgpack.Encoder().encode


class Log:
    """A log as this process last read or wrote it."""

    def __init__(self, head: Head | None = None) -> None:
        self._head = head or Head()

    @property
    def size(self) -> int:
        """The size of the stored table in bytes."""
        return self._head.copy_bytes + self._head.entry_bytes

    def is_current(self, store: Store) -> bool:
        """Tell whether the store has what this process last read or wrote."""
        return store.head() == _encode(self._head)

    def append(self, store: Store, entries: Sequence[bytes], copy: Callable[[], Iterable[bytes]]) -> None:
        """Store the changes since the last call as `entries`, or a copy of the whole table if one is due."""
        head = self._head
        head.token = os.urandom(8).hex()
        many = head.last - head.copied >= MAX_ENTRIES
        size = sum(map(len, entries))
        if head.last and not many and head.entry_bytes + size <= max(head.copy_bytes, COPY_FLOOR):
            head.entry_bytes += size
            for entry in entries:
                head.last += 1
                store.add(head.last, entry)
        else:
            store.clear()
            head.first = head.last + 1
            head.copy_bytes, head.entry_bytes = 0, 0
            for part in copy():
                head.last += 1
                head.copy_bytes += len(part)
                store.add(head.last, part)
            head.copied = head.last
        store.set_head(_encode(head))


def read_log(store: Store, head: bytes) -> tuple[Log, list[bytes]]:
    """Return the log with this head, and its entries.

    Raises:
        StateVersionError: another version wrote it, or it is damaged.
    """
    require_version(head)
    try:
        found = _decode_head(head)
    except msgspec.DecodeError as error:
        raise damaged(error) from error
    entries = []
    for number in range(found.first, found.last + 1):
        entry = store.entry(number)
        if entry is None:
            raise damaged(f"entry {number} of {found.first} to {found.last} is missing")
        entries.append(entry)
    return Log(found), entries


ENTRY_BYTES = 4_194_304
"""The approximate limit of an entry. Spark's JVM has several copies of an entry in its heap while it stores it."""

_SAMPLE = 20
"""The number of items that are measured to find how many fit into an entry."""


def items_per_entry(items: Collection[object]) -> int:
    """Return how many of these items fit into an entry, at least one."""
    if len(items) <= _SAMPLE:
        return _SAMPLE
    pairs = items.items() if isinstance(items, dict) else items
    sample = list(islice(pairs, _SAMPLE))
    return max(1, ENTRY_BYTES * _SAMPLE // len(_encode(sample)))


class StoredTable:
    """A shard's table together with its log."""

    def __init__(self, table: Table, log: Log | None = None) -> None:
        self.table = table
        self.log = log or Log()

    def save(self, store: Store) -> None:
        """Store the changes since the last call."""
        difference = list(_entries(self.table.pop_difference()))
        self.log.append(store, difference, lambda: _entries(self.table.state))


_LARGE = ("metrics", "lives", "forgotten_sums")
"""The parts of a state that grow with the table."""


def _entries(state: State) -> Iterator[bytes]:
    """Yield a state in entries of about `ENTRY_BYTES`. The last one has all small fields."""
    parts = {name: getattr(state, name) for name in _LARGE}
    sizes = {name: items_per_entry(items) for name, items in parts.items()}
    left = {name: iter(items.items() if isinstance(items, dict) else items) for name, items in parts.items()}
    entries = max(1, *(ceil(len(items) / sizes[name]) for name, items in parts.items()))
    for last in (*[False] * (entries - 1), True):
        taken = {name: type(parts[name])(islice(items, sizes[name])) for name, items in left.items()}
        yield pack(msgspec.structs.replace(state, **taken) if last else State(**taken))


def load(store: Store, settings: TableSettings) -> StoredTable | None:
    """Return the stored table, or None if none is stored.

    Raises:
        StateVersionError: another version wrote it, or it is damaged.
    """
    head = store.head()
    if head is None:
        return None
    log, entries = read_log(store, head)
    if not entries:
        raise damaged("it has no entries")
    state = unpack(entries[0])
    for entry in entries[1:]:
        state = _merge(state, unpack(entry))
    return StoredTable(Table(state, settings), log)


def _merge(state: State, entry: State) -> State:
    """Return `state` with the changes of `entry`."""
    lives = state.lives
    for instance, changed in entry.lives.items():
        if changed:
            lives[instance] = changed
        else:
            lives.pop(instance, None)
    entry.lives = lives
    entry.metrics = state.metrics + entry.metrics
    entry.forgotten_sums = state.forgotten_sums | entry.forgotten_sums
    return entry
