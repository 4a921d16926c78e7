"""The storage of a shard's table: a copy of the state, then a log with the changes of each epoch.

An epoch appends a state with the lives, forgotten sums and metrics that changed, and all small fields. When the entries
after the copy become as large as the copy, a new copy is made. So the average cost depends on the changes, and the log
is about twice as large as the table at most. The head has a random token for the last entry. A process whose table in
memory has the same token continues without reading the log.

A log is replaced only by a new head: until then the entries that the old head names stay as they are.
"""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Protocol
from zlib import crc32

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream_aggregator.table.lives import FEW_LIVES
from tallystream_aggregator.table.state import Removed, State, StateError, pack, unpack
from tallystream_aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.state import Life, LifeName

COPY_FLOOR = 262_144
"""Entries up to this many bytes do not cause a new copy, so a small table is rarely copied."""

MOST = 0.9
"""A copy is made when the entries after the last one would have more than this share of its bytes."""

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
        """Add an entry, or replace it."""

    def remove(self, number: int) -> None:
        """Remove an entry."""

    def clear(self) -> None:
        """Remove all entries, which are read for it. Replacing them one by one is cheaper."""


class Head(msgspec.Struct, array_like=True):
    """The head of a log: it has the entries `first` to `last`, and `token` identifies the last one.

    The entries up to `copied` are a copy of `copy_bytes`. Those after it have `entry_bytes`. `checksum` is the CRC-32
    of all entries, one after the other.
    """

    version: Literal[1] = 1
    token: str = ""
    first: int = 1
    last: int = 0
    copied: int = 0
    copy_bytes: int = 0
    entry_bytes: int = 0
    checksum: int = 0


ENTRY_BYTES = 1_048_576
"""The approximate limit of an entry. Spark's JVM has several copies of an entry in its heap while it stores it."""

FEW_BYTES = 16_384
"""Few lives of an instance are packed at once if the names and tags of their metrics have up to so many bytes."""

_decode_head = msgpack_decoder(Head)


class StoredTable:
    """A shard's table, with the head of its log as this process last read or wrote it."""

    def __init__(self, table: Table, head: Head | None = None) -> None:
        self.table = table
        self._head = head or Head()
        self._next: Head | None = None  # while it is saved

    @property
    def size(self) -> int:
        """The size of the stored table in bytes."""
        return self._head.copy_bytes + self._head.entry_bytes

    def is_current(self, store: Store) -> bool:
        """Tell whether the store has what this process last read or wrote."""
        return store.head() == pack(self._head)

    def save_ahead(self, store: Store) -> Iterator[None]:
        """Store the changes since the last save if they are large, or a copy of the whole table if one is due.

        After each entry the table may change. Take all of them, and then call `save`: nothing of it counts before.
        """
        head = self._next = msgspec.structs.replace(self._head)
        changed_bytes = self.table.changed_share * head.copy_bytes
        most_bytes = max(MOST * head.copy_bytes, COPY_FLOOR)
        if not 0 < head.last < head.copied + MAX_ENTRIES or head.entry_bytes + changed_bytes > most_bytes:
            yield from self._copy(store, head)
        elif changed_bytes > ENTRY_BYTES:
            yield from _add(store, head, self.table.pop_difference())

    def save(self, store: Store) -> None:
        """Store the changes since `save_ahead`, and the head."""
        if self._next is None:
            _exhaust(self.save_ahead(store))
        assert self._next is not None
        _exhaust(_add(store, self._next, self.table.pop_difference()))
        before, self._head, self._next = self._head, self._next, None
        self._head.token = os.urandom(8).hex()
        store.set_head(pack(self._head))
        for number in range(before.first, self._head.first):
            store.remove(number)

    def _copy(self, store: Store, head: Head) -> Iterator[None]:
        """Store a copy of the table after the entries of the log, which then begins with it."""
        if not head.last:  # what is there is of another log
            store.set_head(pack(Head()))
            store.clear()
        self.table.pop_difference()
        head.first, head.entry_bytes, head.checksum = head.last + 1, 0, 0
        yield from _add(store, head, self.table.state)
        head.copied, head.copy_bytes, head.entry_bytes = head.last, head.entry_bytes, 0


def _add(store: Store, head: Head, state: State) -> Iterator[None]:
    """Store the entries of a state."""
    for entry in _entries(state):
        head.last += 1
        head.entry_bytes += len(entry)
        head.checksum = crc32(entry, head.checksum)
        store.add(head.last, entry)
        yield


def _exhaust(entries: Iterator[None]) -> None:
    for _ in entries:
        pass


def _items(of: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the items of a dictionary that may change meanwhile: none that is gone by then, and no new one."""
    for key in list(of):
        if key in of:
            yield key, of[key]


def _items_of(instance: str, lives: dict[LifeName, Life]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the lives of an instance as (instance, name, life), or few small ones together as ("", instance, lives)."""
    if len(lives) <= FEW_LIVES and sum([life.bytes for life in lives.values()]) <= FEW_BYTES:
        yield "", instance, lives
    else:
        yield from ((instance, name, life) for name, life in _items(lives))


def _entries(state: State) -> Iterator[bytes]:
    """Yield a state in entries of about `ENTRY_BYTES`, which may change after each. The last has all small fields."""
    items = chain(
        (("metrics", "", number, metric) for number, metric in _items(state.metrics)),
        (("lives", *one) for instance, lives in _items(state.lives) for one in _items_of(instance, lives)),
        (("forgotten_sums", "", number, partial) for number, partial in _items(state.forgotten_sums)),
    )
    parts, size = _no_parts(), 0
    for part, instance, key, item in items:
        packed = pack(item)
        into = parts[part].setdefault(instance, {}) if instance else parts[part]
        into[key] = msgspec.Raw(packed)
        size += 2 * len(packed)  # the key of a life has a part of it once more
        if size >= ENTRY_BYTES:
            yield pack(msgspec.structs.replace(State(), **parts))
            parts, size = _no_parts(), 0
    yield pack(msgspec.structs.replace(state, **parts))


def _no_parts() -> dict[str, dict[Any, Any]]:
    """Return no items of the parts of a state that grow with the table, which an entry has as packed values."""
    return {"metrics": {}, "lives": {}, "forgotten_sums": {}}


def load(store: Store, settings: TableSettings) -> StoredTable | None:
    """Return the stored table, or None if none is stored.

    Raises:
        StateError: another version wrote it, or it is damaged.
    """
    packed = store.head()
    if packed is None:
        return None
    try:
        head = _decode_head(packed)
    except msgspec.DecodeError as error:
        raise StateError(error) from error
    if not head.last:
        raise StateError("it has no entries")
    state, checksum = State(), 0
    for number in range(head.first, head.last + 1):
        entry = store.entry(number)
        if entry is None:
            raise StateError(f"entry {number} of {head.last} is missing")
        checksum = crc32(entry, checksum)
        state = _merge(state, unpack(entry))
    if checksum != head.checksum:
        raise StateError("its entries are not those that were written")
    return StoredTable(Table(state, settings), head)


def _merge(state: State, entry: State) -> State:
    """Return `state` with the changes of `entry`."""
    lives = state.lives
    for instance, changed in entry.lives.items():
        lives.setdefault(instance, {}).update(changed)
    for app, instance, life in entry.removed.lives:
        known = lives.get(instance, {})
        known.pop((app, life), None)
        if not known:
            lives.pop(instance, None)
    metrics, forgotten_sums = state.metrics, state.forgotten_sums
    metrics.update(entry.metrics)
    forgotten_sums.update(entry.forgotten_sums)
    for number in entry.removed.metrics:
        metrics.pop(number, None)
    for number in entry.removed.forgotten_sums:
        forgotten_sums.pop(number, None)
    return msgspec.structs.replace(
        entry, lives=lives, metrics=metrics, forgotten_sums=forgotten_sums, removed=Removed()
    )
