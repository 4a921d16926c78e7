"""Retired lives. They are in chunks of a store, and return to memory when one of their records arrives (rule 3).

Memory has one key for each life on disk, with the number of its chunk. A chunk never changes: a life that leaves it is
ignored from then on, and the chunk is deleted when no life is left. Chunks are written at the end of a batch (`flush`).
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream_aggregator.table.state import Chunk, Life, damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tallystream_aggregator.table.state import State

CHUNK_BYTES = 65_536
"""A chunk is closed at this size. To read one life, its chunk is read."""

DELETED = -1
"""In place of a chunk's number in the changes: the life is no longer on disk."""

_INSTANCE, _APP, _LIFE = 8, 4, 12
"""Bytes of the three hashes in a key."""

_encode = msgspec.msgpack.Encoder().encode
_decode_chunk = msgpack_decoder(dict[bytes, bytes])
_decode_life = msgpack_decoder(Life)


class Chunks(Protocol):
    """A store of chunks."""

    def chunk(self, number: int) -> bytes | None:
        """Return a chunk, or None if there is none."""

    def set_chunk(self, number: int, chunk: bytes | None) -> None:
        """Set a chunk; None removes it."""


class MemoryChunks(dict[int, bytes]):
    """Chunks in a dict, for a table that is not stored."""

    def chunk(self, number: int) -> bytes | None:
        """Return a chunk, or None if there is none."""
        return self.get(number)

    def set_chunk(self, number: int, chunk: bytes | None) -> None:
        """Set a chunk; None removes it."""
        if chunk is None:
            self.pop(number, None)
        else:
            self[number] = chunk


def key_of(instance: str, app: str, life: str) -> bytes:
    """Return the key of a life: hashes of its instance, app and ID. A caller compares these, as hashes may collide."""
    parts = ((instance, _INSTANCE), (app, _APP), (life, _LIFE))
    return b"".join(blake2b(text.encode(), digest_size=size).digest() for text, size in parts)


class Disk:
    """The lives of `state` that are on disk, in `chunks`."""

    def __init__(self, state: State, chunks: Chunks) -> None:
        self._changed: set[bytes] = set()
        self._changed_chunks: set[int] = set()
        self._state, self._chunks = state, chunks
        self._keys_by_instance: dict[bytes, set[bytes]] = defaultdict(set)
        for key in state.disk:
            self._keys_by_instance[key[:_INSTANCE]].add(key)
        self._read: dict[int, dict[bytes, bytes]] = {}
        self._unwritten: dict[int, bytes | None] = {}
        self._due_ms = 0

    def __len__(self) -> int:
        """Return how many lives are on disk."""
        return len(self._state.disk)

    def use_store(self, chunks: Chunks) -> None:
        """Use another handle of the same store. Spark has a new one for each batch."""
        self._chunks = chunks

    def has_life_of(self, instance: str, app: str) -> bool:
        """Tell whether a life of this app and instance is on disk. The life of the short form does not count."""
        prefix, short = key_of(instance, app, "")[: _INSTANCE + _APP], key_of(instance, app, "")
        return any(
            key.startswith(prefix) and key != short for key in self._keys_by_instance.get(prefix[:_INSTANCE], ())
        )

    def find(self, instance: str, app: str, life: str) -> Life | None:
        """Return a life that is on disk, or None. It stays there."""
        key = key_of(instance, app, life)
        if key not in self._state.disk:
            return None
        found = self._life(key)
        return found if (found.instance, found.app, found.life) == (instance, app, life) else None

    def all_of(self, instance: str) -> list[Life]:
        """Return the lives of an instance that are on disk. They stay there."""
        prefix = key_of(instance, "", "")[:_INSTANCE]
        found = (self._life(key) for key in sorted(self._keys_by_instance.get(prefix, ())))
        return [life for life in found if life.instance == instance]

    def remove(self, life: Life) -> None:
        """Remove a life from disk."""
        key = key_of(life.instance, life.app, life.life)
        number = self._state.disk.pop(key)
        self._keys_by_instance[key[:_INSTANCE]].discard(key)
        if not self._keys_by_instance[key[:_INSTANCE]]:
            del self._keys_by_instance[key[:_INSTANCE]]
        self._changed.add(key)
        self._changed_chunks.add(number)
        chunk = self._state.chunks[number]
        chunk.lives -= 1
        if not chunk.lives:
            del self._state.chunks[number]
            self._unwritten[number] = None

    def add(self, lives: Iterable[Life]) -> None:
        """Add lives that are not on disk yet."""
        packed: dict[bytes, bytes] = {}
        kept: dict[str, int] = {}
        size = 0
        for life in lives:
            key = key_of(life.instance, life.app, life.life)
            packed[key] = _encode(life)
            size += len(packed[key])
            if life.life:
                kept[life.partition] = min(life.keep_ms, kept.get(life.partition, life.keep_ms))
            if size >= CHUNK_BYTES:
                self._add_chunk(packed, kept)
                packed, kept, size = {}, {}, 0
        if packed:
            self._add_chunk(packed, kept)

    def __iter__(self) -> Iterator[Life]:
        """Yield every life on disk. Reads all chunks."""
        for number in list(self._state.chunks):
            yield from self._lives(number)
            self._read.pop(number, None)

    def due_lives(self, clocks: dict[str, int], now_ms: int, after_ms: int, limit: int) -> list[Life]:
        """Return up to `limit` lives without a record for `after_ms`, by their partition's clock and by `now_ms`.

        `clocks` maps partition → its clock. Lives of the short form are never among them.
        """
        if now_ms < self._due_ms:
            return []
        found: list[Life] = []
        for number, chunk in list(self._state.chunks.items()):
            for partition, oldest_ms in list(chunk.oldest_ms.items()):
                end_ms = min(clocks.get(partition, 0), now_ms) - after_ms
                if oldest_ms > end_ms:
                    continue
                mine = [life for life in self._lives(number) if life.partition == partition and life.life]
                due, left = [life for life in mine if life.keep_ms <= end_ms], limit - len(found)
                found += due[:left]
                if len(due) <= left:
                    self._set_oldest(
                        number, partition, min((x.keep_ms for x in mine if x.keep_ms > end_ms), default=None)
                    )
            self._read.pop(number, None)
            if len(found) >= limit:
                return found
        self._due_ms = min(
            (oldest_ms + after_ms for chunk in self._state.chunks.values() for oldest_ms in chunk.oldest_ms.values()),
            default=now_ms + after_ms,
        )
        return found

    def pop_difference(self) -> tuple[dict[bytes, int], dict[int, Chunk]]:
        """Return the keys and chunks that changed since the last call.

        A removed key has the value `DELETED`, a removed chunk has no lives.
        """
        disk = {key: self._state.disk.get(key, DELETED) for key in self._changed}
        chunks = {number: self._state.chunks.get(number, Chunk(0, {})) for number in self._changed_chunks}
        self._changed, self._changed_chunks = set(), set()
        return disk, chunks

    def flush(self) -> None:
        """Write the changed chunks."""
        for number, chunk in self._unwritten.items():
            self._chunks.set_chunk(number, chunk)
        self._unwritten.clear()
        self._read.clear()

    def _set_oldest(self, number: int, partition: str, oldest_ms: int | None) -> None:
        kept = self._state.chunks[number].oldest_ms
        self._changed_chunks.add(number)
        if oldest_ms is None:
            del kept[partition]
        else:
            kept[partition] = oldest_ms

    def _add_chunk(self, packed: dict[bytes, bytes], kept: dict[str, int]) -> None:
        state = self._state
        state.last_chunk = number = state.last_chunk + 1
        state.chunks[number] = Chunk(len(packed), kept)
        self._changed_chunks.add(number)
        self._unwritten[number] = _encode(packed)
        self._due_ms = 0
        for key in packed:
            state.disk[key] = number
            self._keys_by_instance[key[:_INSTANCE]].add(key)
            self._changed.add(key)

    def _lives(self, number: int) -> Iterator[Life]:
        for key, packed in self._packed(number).items():
            if self._state.disk.get(key) == number:
                yield _life(packed)

    def _life(self, key: bytes) -> Life:
        return _life(self._packed(self._state.disk[key])[key])

    def _packed(self, number: int) -> dict[bytes, bytes]:
        found = self._read.get(number)
        if found is None:
            stored = self._unwritten.get(number) or self._chunks.chunk(number)
            if stored is None:
                raise damaged(f"chunk {number} of its lives on disk is missing")
            try:
                found = self._read[number] = _decode_chunk(stored)
            except msgspec.DecodeError as error:
                raise damaged(error) from error
        return found


def _life(packed: bytes) -> Life:
    try:
        return _decode_life(packed)
    except msgspec.DecodeError as error:
        raise damaged(error) from error
