"""The storage of a shard's table: a copy of the state, then a log with the changes of each epoch.

An epoch appends a state with the lives, forgotten sums and metrics that changed, and all small fields. When the entries
after the copy are as large as the copy, a new copy is made. So the average cost depends on the changes, and the log is
at most twice as large as the table. The head has a random token for the last entry. A process whose table in memory has
the same token continues without reading the log.
"""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream_aggregator.table.state import STATE_VERSION, Removed, State, StateError, pack, unpack
from tallystream_aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.table.limits import TableSettings

COPY_FLOOR = 262_144
"""Entries up to this many bytes do not cause a new copy, so a small table is rarely copied."""

MOST = 0.9
"""The share of lives from which on a copy is made at once: their changes would soon be as large."""

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
    """The head of a log: it has the entries 1 to `last`, and `token` identifies the last one.

    The entries up to `copied` are a copy of `copy_bytes`. Those after it have `entry_bytes`.
    """

    version: Literal[1] = STATE_VERSION
    token: str = ""
    last: int = 0
    copied: int = 0
    copy_bytes: int = 0
    entry_bytes: int = 0


ENTRY_BYTES = 4_194_304
"""The approximate limit of an entry. Spark's JVM has several copies of an entry in its heap while it stores it."""

_decode_head = msgpack_decoder(Head)


class StoredTable:
    """A shard's table, with the head of its log as this process last read or wrote it."""

    def __init__(self, table: Table, head: Head | None = None) -> None:
        self.table = table
        self._head = head or Head()

    @property
    def size(self) -> int:
        """The size of the stored table in bytes."""
        return self._head.copy_bytes + self._head.entry_bytes

    def is_current(self, store: Store) -> bool:
        """Tell whether the store has what this process last read or wrote."""
        return store.head() == pack(self._head)

    def save(self, store: Store) -> None:
        """Store the changes since the last call, or a copy of the whole table if one is due."""
        difference, state, head = self.table.pop_difference(), self.table.state, self._head
        head.token = os.urandom(8).hex()
        is_copy_due = not 0 < head.last < head.copied + MAX_ENTRIES or (
            _lives_of(difference) >= MOST * _lives_of(state) and head.copy_bytes > COPY_FLOOR
        )
        entries = [] if is_copy_due else list(_entries(difference))
        size = head.entry_bytes + sum(map(len, entries))
        if not is_copy_due and size <= max(head.copy_bytes, COPY_FLOOR):
            head.entry_bytes = size
            for entry in entries:
                head.last += 1
                store.add(head.last, entry)
        else:
            self._copy(store)
        store.set_head(pack(head))

    def _copy(self, store: Store) -> None:
        """Replace the log by a copy of the table."""
        head, before = self._head, self._head.last
        if not before:
            store.clear()
        head.last, head.copy_bytes, head.entry_bytes = 0, 0, 0
        for entry in _entries(self.table.state):
            head.last += 1
            head.copy_bytes += len(entry)
            store.add(head.last, entry)
        for number in range(head.last + 1, before + 1):
            store.remove(number)
        head.copied = head.last


def _lives_of(state: State) -> int:
    return sum(map(len, state.lives.values()))


def _entries(state: State) -> Iterator[bytes]:
    """Yield a state in entries of about `ENTRY_BYTES`. The last one has all small fields."""
    items = chain(
        (("metrics", "", number, metric) for number, metric in state.metrics.items()),
        (("lives", instance, name, life) for instance, lives in state.lives.items() for name, life in lives.items()),
        (("forgotten_sums", "", number, partial) for number, partial in state.forgotten_sums.items()),
    )
    parts, size = _no_parts(), 0
    for part, instance, key, item in items:
        packed = pack(item)
        into = parts[part].setdefault(instance, {}) if part == "lives" else parts[part]
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
    state = State()
    for number in range(1, head.last + 1):
        entry = store.entry(number)
        if entry is None:
            raise StateError(f"entry {number} of {head.last} is missing")
        state = _merge(state, unpack(entry))
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
