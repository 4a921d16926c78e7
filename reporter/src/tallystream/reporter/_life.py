"""One life of a registry at one destination, its parts, and the records on their way."""

from __future__ import annotations

import msgspec

from tallystream.reporter._parts import Parts
from tallystream.reporter._since import Values
from tallystream.reporter.clock import Instant
from tallystream.reporter.errors import TallystreamError
from tallystream.reporter.record import Metric, Snapshot


class CannotTellError(TallystreamError):
    """Nobody can say any more whether a record arrived."""


class Outgoing(msgspec.Struct, eq=False):
    """A record on its way: the snapshot, as published, and the values of the whole process that it stands for.

    Where two records of one part have the same object as `layout`, they are of the same metrics in the same order.
    """

    snapshot: Snapshot
    value: bytes
    values: list[Metric]
    at: Instant
    layout: object


class Doubt(msgspec.Struct, frozen=True):
    """A part of a life of which records were handed over and may or may not have reached the table.

    In question are the seqs above `acknowledged_seq`; `not_before_ms` is when the first of them was handed over, by the
    process's wall clock.
    """

    life: str
    part: int
    acknowledged_seq: int
    not_before_ms: int


class Part(msgspec.Struct):
    """What is known of one part: `unknown` has the first and the newest of the records of unknown fate."""

    seq: int = 0
    acknowledged_seq: int = 0
    closed: bool = False
    under_way: Outgoing | None = None
    unknown: list[Outgoing] = []


class Life(msgspec.Struct):
    """One life: `base` is what earlier lives had counted, `heard` when its last acknowledged record was handed over.

    All its records are of one `app`.
    """

    id: str
    app: str
    born_ms: int
    base: Values
    heard: Instant
    split: Parts
    prev_ms: int | None = None
    refused: bool = False
    outgrown: bool = False
    parts: dict[int, Part] = msgspec.field(default_factory=lambda: {0: Part()})

    @property
    def established(self) -> bool:
        """Whether it has handed over a record."""
        return any(part.seq for part in self.parts.values())

    @property
    def closed(self) -> bool:
        """Whether every part's final record was acknowledged."""
        return all(part.closed for part in self.parts.values())


def remember(part: Part, outgoing: Outgoing) -> None:
    """Note that nobody knows what became of a record."""
    part.unknown[1:] = [outgoing]
