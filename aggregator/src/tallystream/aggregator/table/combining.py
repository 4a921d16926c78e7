"""A group of combiners and what is stored of it: each entry of its log has the combiners that changed."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from tallystream.aggregator.table.combined import Combined, Combiner
from tallystream.aggregator.table.log import Log, Store, read
from tallystream.aggregator.table.state import STATE_VERSION, MetricId, damaged
from tallystream.reporter.decoding import msgpack_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK = 2_000
"""Metrics in one entry of a copy."""


class Entry(msgspec.Struct, array_like=True):
    """The combiners that changed; `published` is that of the group."""

    version: int
    published: bool
    combiners: list[tuple[MetricId, Combiner]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(Entry)


class StoredCombined:
    """A group of combiners together with its log."""

    def __init__(self, combined: Combined, log: Log | None = None) -> None:
        self.combined = combined
        self.log = log or Log()

    def save(self, store: Store) -> None:
        """Store what has changed since the last time."""
        dirty, self.combined.dirty = self.combined.dirty, set()
        changed = [(metric, self.combined.metrics[metric]) for metric in dirty]
        self.log.append(store, _entry(self.combined, changed), lambda: pack(self.combined))


def pack(combined: Combined) -> Iterator[bytes]:
    """Yield the whole as entries, none of them too large for one value."""
    combiners = iter(combined.metrics.items())
    yield _entry(combined, list(islice(combiners, CHUNK)))
    while chunk := list(islice(combiners, CHUNK)):
        yield _entry(combined, chunk)


def unpack(entries: list[bytes]) -> Combined:
    """Return what the entries say.

    Raises:
        StateVersionError: one is damaged.
    """
    combined = Combined()
    for data in entries:
        try:
            entry = _decode(data)
        except msgspec.DecodeError as error:
            raise damaged(error) from error
        combined.published = entry.published
        combined.metrics.update(entry.combiners)
    return combined


def load(store: Store, begin: Callable[[], Combined] = Combined) -> StoredCombined:
    """Return the group that is stored; where there is none, the one that `begin` returns.

    Raises:
        StateVersionError: another version wrote it, or it is damaged.
    """
    head = store.head()
    if head is None:
        return StoredCombined(begin())
    log, entries = read(store, head)
    return StoredCombined(unpack(entries), log)


def _entry(combined: Combined, combiners: list[tuple[MetricId, Combiner]]) -> bytes:
    return _encode(Entry(STATE_VERSION, combined.published, combiners))
