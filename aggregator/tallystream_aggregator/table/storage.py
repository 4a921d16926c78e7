"""How a shard's table is stored, over any small store: a copy of the whole, then a log of what each batch changed.

A batch appends one entry: a state with the instances, bases and metrics that changed, and all of the small things; an
instance without lives is gone. When the entries after the copy are as large as the copy, a new copy is made: a batch
costs, on the average, what it changes, and a table is read in at most twice its size. The head names the last entry by
a token of its own, so that a table that is still in memory is known for what is stored: it goes on without being read.
"""

from __future__ import annotations

import os
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Protocol

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream_aggregator.table.disk import GONE, Chunks
from tallystream_aggregator.table.state import STATE_VERSION, State, damaged, pack, require_version, unpack
from tallystream_aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from tallystream_aggregator.table.limits import TableSettings

COPY_FLOOR = 262_144
"""Bytes of entries that are borne whatever the size of the copy: a small table is seldom copied."""

MOST_ENTRIES = 500
"""Entries after which a copy is made whatever their size: they are read one by one."""


class Store(Chunks, Protocol):
    """Where one log is kept: a head, and entries by number; and beside it lives on disk, in chunks by number."""

    def head(self) -> bytes | None:
        """Return the head, None where the log is new."""

    def set_head(self, head: bytes) -> None:
        """Replace the head."""

    def entry(self, number: int) -> bytes | None:
        """Return an entry, None where there is none."""

    def add(self, number: int, entry: bytes) -> None:
        """Add an entry."""

    def clear(self) -> None:
        """Remove all entries."""


class Head(msgspec.Struct, array_like=True):
    """What names what is stored: entries `first` to `last`, the last one under `token`.

    `copied` is the copy's last entry; the copy has `copy_bytes`, the entries after it `entry_bytes`.
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
        """The bytes of what is stored."""
        return self._head.copy_bytes + self._head.entry_bytes

    def is_still(self, store: Store) -> bool:
        """Tell whether nothing else has been stored since."""
        return store.head() == _encode(self._head)

    def append(self, store: Store, entries: Sequence[bytes], copy: Callable[[], Iterable[bytes]]) -> None:
        """Store what has changed since the last time, or a copy of the whole, in as many entries as it has."""
        head = self._head
        head.token = os.urandom(8).hex()
        many = head.last - head.copied >= MOST_ENTRIES
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


def read(store: Store, head: bytes) -> tuple[Log, list[bytes]]:
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
"""How large an entry may be, about: Spark's JVM has several copies of it in its heap while it is stored."""

_SAMPLE = 20
"""Items whose size tells how many fit into an entry."""


def items_of_an_entry(items: Collection[object]) -> int:
    """Return how many of these items an entry has, one at least."""
    if len(items) <= _SAMPLE:
        return _SAMPLE
    pairs = items.items() if isinstance(items, dict) else items
    sample = list(islice(pairs, _SAMPLE))
    return max(1, ENTRY_BYTES * _SAMPLE // len(_encode(sample)))


class Stored:
    """A shard's table together with its log."""

    def __init__(self, table: Table, log: Log | None = None) -> None:
        self.table = table
        self.log = log or Log()

    def save(self, store: Store) -> None:
        """Store what has changed since the last time."""
        self.table.disk.open(store)
        difference = list(_entries(self.table.take_difference()))
        self.log.append(store, difference, lambda: _entries(self.table.state))
        self.table.disk.flush()


_LARGE = ("metrics", "lives", "disk", "held", "base", "chunks")
"""The parts of a state that grow with the table."""


def _entries(state: State) -> Iterator[bytes]:
    """Yield a state in entries of about `ENTRY_BYTES`; the last one has all that is small."""
    parts = {name: getattr(state, name) for name in _LARGE}
    sizes = {name: items_of_an_entry(items) for name, items in parts.items()}
    left = {name: iter(items.items() if isinstance(items, dict) else items) for name, items in parts.items()}
    entries = max(1, *(ceil(len(items) / sizes[name]) for name, items in parts.items()))
    for last in (*[False] * (entries - 1), True):
        taken = {name: type(parts[name])(islice(items, sizes[name])) for name, items in left.items()}
        yield pack(msgspec.structs.replace(state, **taken) if last else State(**taken))


def load(store: Store, settings: TableSettings, begin: Callable[[], State] = State) -> Stored:
    """Return the table that is stored; where there is none, the one whose state `begin` returns.

    Raises:
        StateVersionError: another version wrote it, or it is damaged.
    """
    head = store.head()
    if head is None:
        return Stored(Table(begin(), settings, store))
    log, entries = read(store, head)
    if not entries:
        raise damaged("it has no entries")
    state = unpack(entries[0])
    for entry in entries[1:]:
        state = _merge(state, unpack(entry))
    return Stored(Table(state, settings, store), log)


def _merge(state: State, entry: State) -> State:
    """Return `entry` with all of `state` that it does not replace."""
    lives, disk, chunks = state.lives, state.disk, state.chunks
    for instance, changed in entry.lives.items():
        if changed:
            lives[instance] = changed
        else:
            lives.pop(instance, None)
    for key, number in entry.disk.items():
        if number == GONE:
            disk.pop(key, None)
        else:
            disk[key] = number
    for number, chunk in entry.chunks.items():
        if chunk.lives:
            chunks[number] = chunk
        else:
            chunks.pop(number, None)
    entry.lives, entry.disk, entry.chunks = lives, disk, chunks
    entry.metrics = state.metrics + entry.metrics
    entry.held, entry.base = state.held | entry.held, state.base | entry.base
    return entry
