"""The journal of a consumer of the demonstration: what it processed, counted independently of any metric.

A journal has one line of JSON for each event, appended in one write, so a kill leaves only whole lines. The kinds are
`life` (a process has started), `batch` (a batch is processed: its number, counts and offsets), `acknowledged` (the
broker has acknowledged the report), `hold` (the process waits to be killed), `committed`, and `end`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

Span = tuple[int, int, int]
"""(partition, first offset, offset after the last)"""


class JournalError(TallystreamError):
    """A journal contradicts itself."""


class Line(msgspec.Struct, omit_defaults=True):
    """A line. `delays` is the number of events that have a delay, and `delay_sum` the sum of the delays in minutes."""

    kind: Literal["life", "batch", "acknowledged", "hold", "committed", "end"]
    n: int = 0
    count: int = 0
    delays: int = 0
    delay_sum: int = 0
    spans: list[Span] = []


class JournalWriter:
    """Appends lines. When `write` returns, the operating system has the line, so a SIGKILL does not lose it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, line: Line) -> None:
        """Append a line."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class Batch:
    """A batch that was processed. `life` is the number of the process, from 1, in the order of their starts."""

    life: int
    line: Line
    acknowledged: bool = False
    held: bool = False
    committed: bool = False


def parse(text: bytes) -> list[Batch]:
    """Return the batches of one journal in order, without a last line that is not complete.

    Raises:
        JournalError: the offsets of a batch contradict its count, or a line is about an unknown batch.
    """
    batches: list[Batch] = []
    by_number: dict[int, Batch] = {}
    life = 0
    complete, _, _ = text.rpartition(b"\n")
    for line in _lines(complete):
        if line.kind == "life":
            life += 1
            by_number = {}
        elif line.kind == "batch":
            if line.count != sum(end - first for _, first, end in line.spans):
                raise JournalError(f"journal: the count {line.count} of batch {line.n} of life {life} is wrong.")
            by_number[line.n] = Batch(life, line)
            batches.append(by_number[line.n])
        elif line.kind != "end":
            if line.n not in by_number:
                raise JournalError(f"journal: {line.kind} of batch {line.n} of life {life}, which is unknown.")
            _mark(by_number[line.n], line.kind)
    return batches


def _mark(batch: Batch, kind: str) -> None:
    batch.acknowledged |= kind == "acknowledged"
    batch.held |= kind == "hold"
    batch.committed |= kind == "committed"


_decode = json_decoder(Line)


def _lines(text: bytes) -> list[Line]:
    return [_decode(line) for line in text.splitlines() if line]


def processed(batches: Iterable[Batch]) -> int:
    """Return the number of processed records; a record that was processed twice counts twice."""
    return sum(batch.line.count for batch in batches)


def acknowledged(batches: Iterable[Batch]) -> int:
    """Return the number of processed records whose report the broker acknowledged."""
    return sum(batch.line.count for batch in batches if batch.acknowledged)


def held(batches: Iterable[Batch]) -> int:
    """Return the number of records in batches that were reported, but held and never committed."""
    return sum(batch.line.count for batch in batches if batch.held and not batch.committed)


def covered(batches: Iterable[Batch]) -> int:
    """Return the number of different processed records: the size of the union of all offset ranges."""
    spans: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for batch in batches:
        for partition, first, end in batch.line.spans:
            spans[partition].append((first, end))
    return sum(_union(ranges) for ranges in spans.values())


def duplicates(batches: Sequence[Batch]) -> int:
    """Return how often a record was processed again."""
    return processed(batches) - covered(batches)


def _union(ranges: list[tuple[int, int]]) -> int:
    total, reached = 0, -1
    for first, end in sorted(ranges):
        total += max(0, end - max(first, reached))
        reached = max(reached, end)
    return total
