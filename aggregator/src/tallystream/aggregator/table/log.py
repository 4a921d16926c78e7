"""How a shard's table is stored: a log of what each batch changed, after a copy of the whole; pure, over a small store.

A batch appends one entry, as large as what it changed. When the entries after the copy have become as large as the
copy, it is made anew: so a batch costs, on the average, what it changes, and a table is read in at most twice its size.
The head names the last entry by a token of its own, so that a table that is still in memory is known for what is
stored: it goes on without being read.

An entry is a state (tallystream.aggregator.table.state) with the instances, bases and metrics that changed, and all of
the small things; an instance without lives has gone.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from tallystream.aggregator.table.state import (
    STATE_VERSION,
    State,
    StateVersionError,
    damaged,
    pack,
    unpack,
    version_of,
)
from tallystream.aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream.aggregator.table.settings import TableSettings

COPY_FLOOR = 262_144
"""Bytes of entries that are borne whatever the size of the copy: a small table is seldom copied."""

MOST_ENTRIES = 500
"""Entries after which a copy is made whatever their size: they are read one by one."""

CHUNK = 2_000
"""Instances in one entry of a copy."""


class Store(Protocol):
    """Where one shard's log is kept: a head, and entries by number."""

    def head(self) -> bytes | None:
        """Return the head, None where the shard is new."""

    def set_head(self, head: bytes) -> None:
        """Replace the head."""

    def entry(self, number: int) -> bytes | None:
        """Return an entry, None where there is none."""

    def add(self, number: int, entry: bytes) -> None:
        """Add an entry."""

    def clear(self) -> None:
        """Remove all entries."""


class Head(msgspec.Struct, array_like=True):
    """What names the state: entries `first` to `last`, `last` under `token`; the bytes of the copy and of the rest.

    `copied` is the copy's last entry.
    """

    version: int
    token: str
    first: int
    last: int
    copied: int
    copy_bytes: int
    entry_bytes: int


_heads = msgspec.msgpack.Decoder(Head)
_encode = msgspec.msgpack.Encoder().encode


class Stored:
    """A shard's table together with what is stored of it."""

    def __init__(self, table: Table, head: Head) -> None:
        self.table = table
        self._head = head

    @property
    def bytes(self) -> int:
        """The size of what is stored."""
        return self._head.copy_bytes + self._head.entry_bytes

    def is_still(self, store: Store) -> bool:
        """Tell whether what is stored is this table, to the last batch."""
        head = store.head()
        return head is not None and head == _encode(self._head)

    def save(self, store: Store) -> None:
        """Store what has changed since the last time, or a copy of the whole."""
        head, entry = self._head, pack(self.table.take_difference())
        head.token = _token()
        too_long = head.last - head.copied >= MOST_ENTRIES
        if head.last and not too_long and head.entry_bytes + len(entry) <= max(head.copy_bytes, COPY_FLOOR):
            head.last += 1
            head.entry_bytes += len(entry)
            store.add(head.last, entry)
        else:
            store.clear()
            head.first = head.last + 1
            head.copy_bytes, head.entry_bytes = 0, 0
            for chunk in _chunks(self.table.state):
                head.last += 1
                packed = pack(chunk)
                head.copy_bytes += len(packed)
                store.add(head.last, packed)
            head.copied = head.last
        store.set_head(_encode(head))


def load(store: Store, settings: TableSettings, seed: Callable[[], bytes | None] = lambda: None) -> Stored:
    """Return the table that is stored; the one that `seed` returns, or a new one, where there is none.

    Raises:
        StateVersionError: another version wrote it, or it is damaged.
    """
    data = store.head()
    if data is None or version_of(data) < STATE_VERSION:  # before, the head was the whole state
        whole = data if data is not None else seed()
        begun = State() if whole is None else unpack(whole)
        return Stored(Table(begun, settings), Head(STATE_VERSION, "", 0, 0, 0, 0, 0))
    head = _head(data)
    state: State | None = None
    for number in range(head.first, head.last + 1):
        entry = store.entry(number)
        if entry is None:
            raise damaged(f"entry {number} of {head.first} to {head.last} is missing")
        state = _merge(state, unpack(entry))
    if state is None:
        raise damaged("it has no entries")
    return Stored(Table(state, settings), head)


def _head(data: bytes) -> Head:
    if version_of(data) > STATE_VERSION:
        raise StateVersionError(
            f"state: version {version_of(data)} is not {STATE_VERSION}, this aggregator's; "
            "use the aggregator that wrote it."
        )
    try:
        return _heads.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged(error) from error


def _merge(state: State | None, entry: State) -> State:
    if state is None:
        return entry
    lives, base, metrics = state.lives, state.base, state.metrics
    for instance, changed in entry.lives.items():
        if changed:
            lives[instance] = changed
        else:
            lives.pop(instance, None)
    base.update(entry.base)
    metrics += entry.metrics
    entry.lives, entry.base, entry.metrics = lives, base, metrics
    return entry


def _chunks(state: State) -> Iterator[State]:
    """Yield the whole state as entries, none of them too large for one value."""
    instances = iter(state.lives.items())
    first = msgspec.structs.replace(state, lives=dict(islice(instances, CHUNK)))
    yield first
    while chunk := dict(islice(instances, CHUNK)):
        yield msgspec.structs.replace(state, metrics=[], base={}, lives=chunk)


def _token() -> str:
    return os.urandom(8).hex()
