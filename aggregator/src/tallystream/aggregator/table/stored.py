"""A shard's table and what is stored of it: each entry of its log is a state, with what changed.

An entry has the instances, bases and metrics that changed, and all of the small things; an instance without lives has
gone.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from tallystream.aggregator.table.disk import GONE
from tallystream.aggregator.table.log import Log, Store, read
from tallystream.aggregator.table.state import State, damaged, pack, unpack
from tallystream.aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream.aggregator.table.settings import TableSettings

CHUNK = 2_000
"""Instances in one entry of a copy."""

KEYS = 100_000
"""Keys of lives on disk in one entry of a copy: some 3 MB."""


class Stored:
    """A shard's table together with its log."""

    def __init__(self, table: Table, log: Log | None = None) -> None:
        self.table = table
        self.log = log or Log()

    def save(self, store: Store) -> None:
        """Store what has changed since the last time."""
        self.table.disk.open(store)
        self.log.append(store, pack(self.table.take_difference()), self._copy)
        self.table.disk.flush()

    def _copy(self) -> Iterator[bytes]:
        """Yield the whole state as entries, none of them too large for one value."""
        state = self.table.state
        instances, disk = iter(state.lives.items()), iter(state.disk.items())
        yield pack(msgspec.structs.replace(state, lives=dict(islice(instances, CHUNK)), disk=dict(islice(disk, KEYS))))
        rest = msgspec.structs.replace(state, metrics=[], held={}, base={}, chunks={}, lives={}, disk={})
        while chunk := dict(islice(instances, CHUNK)):
            yield pack(msgspec.structs.replace(rest, lives=chunk))
        while keys := dict(islice(disk, KEYS)):
            yield pack(msgspec.structs.replace(rest, disk=keys))


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
