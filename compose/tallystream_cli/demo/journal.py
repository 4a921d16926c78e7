"""The journal of a consumer of the demonstration: what it processed, counted independently of any metric.

A journal has one line of JSON for each event, appended in one write, so a kill leaves only whole lines. The kinds are
`batch` (a batch is processed: its counts and offsets), `acknowledged` (the broker has acknowledged its report), `hold`
(the process waits to be killed) and `committed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from tallystream.decoding import json_decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Kind = Literal["batch", "acknowledged", "hold", "committed"]
Span = tuple[int, int, int]
"""(partition, first offset, offset after the last)"""


class Line(msgspec.Struct, omit_defaults=True):
    """A line about batch `n`, a number that no other batch of the instance has.

    `delays` is the number of events that have a delay, and `delay_sum` the sum of the delays in minutes.
    """

    kind: Kind
    n: int
    delays: int = 0
    delay_sum: int = 0
    spans: list[Span] = []

    @property
    def count(self) -> int:
        """The number of events of the batch."""
        return sum(end - first for _, first, end in self.spans)

    def text(self) -> bytes:
        """Return the line, to be appended in one write. Then the operating system has it, whatever is killed."""
        return msgspec.json.encode(self) + b"\n"


@dataclass(slots=True)
class Batch:
    """A batch that was processed, and the kinds of the other lines about it."""

    line: Line
    marks: set[Kind] = field(default_factory=set)


_decode = json_decoder(Line)


def parse(text: bytes) -> list[Batch]:
    """Return the batches of one journal in order, without a last line that is not complete."""
    batches: dict[int, Batch] = {}
    complete, _, _ = text.rpartition(b"\n")
    for line in map(_decode, complete.splitlines()):
        if line.kind == "batch":
            batches[line.n] = Batch(line)
        else:
            batches[line.n].marks.add(line.kind)
    return list(batches.values())


def processed(batches: Iterable[Batch]) -> int:
    """Return the number of processed records; a record that was processed twice counts twice."""
    return sum(batch.line.count for batch in batches)


def acknowledged(batches: Iterable[Batch]) -> int:
    """Return the number of processed records whose report the broker acknowledged."""
    return processed(batch for batch in batches if "acknowledged" in batch.marks)


def held(batches: Iterable[Batch]) -> int:
    """Return the number of records in batches that were reported, but held and never committed."""
    return processed(batch for batch in batches if "hold" in batch.marks and "committed" not in batch.marks)


def covered(batches: Iterable[Batch]) -> int:
    """Return the number of different processed records: the size of the union of all offset ranges."""
    total, at = 0, (-1, 0)
    for partition, first, end in sorted(span for batch in batches for span in batch.line.spans):
        reached = at[1] if at[0] == partition else 0
        total += max(0, end - max(first, reached))
        at = (partition, max(reached, end))
    return total


def duplicates(batches: Sequence[Batch]) -> int:
    """Return how often a record was processed again."""
    return processed(batches) - covered(batches)
