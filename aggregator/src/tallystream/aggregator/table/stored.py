"""A shard's table and what is stored of it: each entry of its log is a state, with what changed.

An entry has the instances, bases and metrics that changed, and all of the small things; an instance without lives has
gone.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from tallystream.aggregator.table.log import Log, Store, read
from tallystream.aggregator.table.state import STATE_VERSION, State, damaged, pack, unpack, version_of
from tallystream.aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream.aggregator.table.settings import TableSettings

CHUNK = 2_000
"""Instances in one entry of a copy."""


class Stored:
    """A shard's table together with its log."""

    def __init__(self, table: Table, log: Log | None = None) -> None:
        self.table = table
        self.log = log or Log()

    def save(self, store: Store) -> None:
        """Store what has changed since the last time."""
        self.log.append(store, pack(self.table.take_difference()), self._copy)

    def _copy(self) -> Iterator[bytes]:
        """Yield the whole state as entries, none of them too large for one value."""
        state = self.table.state
        instances = iter(state.lives.items())
        yield pack(msgspec.structs.replace(state, lives=dict(islice(instances, CHUNK))))
        while chunk := dict(islice(instances, CHUNK)):
            yield pack(msgspec.structs.replace(state, metrics=[], base={}, lives=chunk))


def load(store: Store, settings: TableSettings, begin: Callable[[], State] = State) -> Stored:
    """Return the table that is stored; where there is none, the one that `begin` returns.

    Raises:
        StateVersionError: another version wrote it, or it is damaged.
    """
    head = store.head()
    if head is None:
        return Stored(Table(begin(), settings))
    if version_of(head) < STATE_VERSION:  # before, the head was the whole state
        return Stored(Table(unpack(head), settings))
    log, entries = read(store, head)
    if not entries:
        raise damaged("it has no entries")
    state = unpack(entries[0])
    for entry in entries[1:]:
        state = _merge(state, unpack(entry))
    return Stored(Table(state, settings), log)


def _merge(state: State, entry: State) -> State:
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
