"""Spark's checkpoint of one shard's state: what a task sees as `Store`, and which batch counts.

A task reads the state of the last committed batch and its own writes. Nobody else sees the writes before the driver
commits the batch. Only the first commit of a batch counts, and only what was written by the attempt that it names.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class BatchTakenError(Exception):
    """Another driver has committed this batch, or the checkpoint is another one."""


@dataclass
class Batch:
    """The state as one attempt of a batch sees it and leaves it. It is a `Store`."""

    number: int
    stored_head: bytes | None = None
    entries: dict[int, bytes] = field(default_factory=dict)

    def copy(self, number: int) -> Batch:
        """Return a copy, for the attempt of another batch."""
        return Batch(number, self.stored_head, dict(self.entries))

    def head(self) -> bytes | None:
        return self.stored_head

    def set_head(self, head: bytes) -> None:
        self.stored_head = head

    def entry(self, number: int) -> bytes | None:
        """Return an entry, or None if there is none."""
        return self.entries.get(number)

    def add(self, number: int, entry: bytes) -> None:
        self.entries[number] = entry

    def remove(self, number: int) -> None:
        del self.entries[number]

    def clear(self) -> None:
        """Remove the entries, not the head."""
        self.entries.clear()


class Checkpoint:
    """A checkpoint directory. Beginning and committing a batch are requests: make them with `Process.call`."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        """The committed batches."""

    def begin(self) -> Batch:
        number = len(self.batches)
        return self.batches[-1].copy(number) if number else Batch(number)

    def commit(self, batch: Batch) -> None:
        """Make an attempt the committed one of its batch.

        Raises:
            BatchTakenError: the batch is committed, or the batch before it is not.
        """
        if batch.number != len(self.batches):
            raise BatchTakenError(f"batch {batch.number} is not the next one: {len(self.batches)} are committed")
        self.batches.append(batch.copy(batch.number))

    def lose(self) -> None:
        """Lose the whole checkpoint, or set it aside."""
        self.batches.clear()

    def put_back(self, number: int) -> None:
        """Put back an old copy of the checkpoint, with this many batches."""
        del self.batches[number:]

    def damage(self, number: int, size: int) -> bool:
        """Cut an entry of the last batch to this many bytes, or remove it if 0. Return False if there is none."""
        if not self.batches or not self.batches[-1].entries:
            return False
        entries = self.batches[-1].entries
        name = list(entries)[number % len(entries)]
        if size:
            entries[name] = entries[name][: min(size, len(entries[name]) - 1)]
        else:
            del entries[name]
        return True
