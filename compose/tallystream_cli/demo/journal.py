"""The journal of a consumer of the demonstration: what it processed, counted independently of any metric.

A journal has one line of JSON for each event, appended in one write, so a kill leaves only whole lines. The kinds are
`processed` (the work on these records is done), `counted` (the broker has acknowledged the report of a batch),
`committed`, and `stopped` (the process has taken these records, and waits to be killed).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from tallystream.decoding import json_decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Kind = Literal["processed", "counted", "committed", "stopped"]
Span = tuple[int, int, int]
"""(partition, first offset, offset after the last)"""


class Line(msgspec.Struct, omit_defaults=True):
    """A line about the records in `spans`.

    `delays` is the number of counted events that have a delay, and `delay_sum` the sum of the delays in minutes.
    """

    kind: Kind
    spans: list[Span] = []
    delays: int = 0
    delay_sum: int = 0

    def text(self) -> bytes:
        """Return the line, to be appended in one write. Then the operating system has it, whatever is killed."""
        return msgspec.json.encode(self) + b"\n"


_decode = json_decoder(Line)


def parse(text: bytes) -> list[Line]:
    """Return the lines of one journal in order, without a last line that is not complete."""
    complete, _, _ = text.rpartition(b"\n")
    return [_decode(line) for line in complete.splitlines()]


def of_kind(lines: Iterable[Line], kind: Kind) -> list[Line]:
    """Return the lines of one kind in order."""
    return [line for line in lines if line.kind == kind]


def records(lines: Iterable[Line]) -> int:
    """Return the number of records; a record that is in two lines counts twice."""
    return sum(end - first for line in lines for _, first, end in line.spans)


def different(lines: Iterable[Line]) -> int:
    """Return the number of different records: the size of the union of all offset ranges."""
    total, at = 0, (-1, 0)
    for partition, first, end in sorted(span for line in lines for span in line.spans):
        reached = at[1] if at[0] == partition else 0
        total += max(0, end - max(first, reached))
        at = (partition, max(reached, end))
    return total


def repeated(lines: Sequence[Line]) -> int:
    """Return how often a record is in the lines again."""
    return records(lines) - different(lines)


def ends(lines: Iterable[Line]) -> dict[int, int]:
    """Return the end offset of each partition."""
    found: dict[int, int] = {}
    for partition, _, end in (span for line in lines for span in line.spans):
        found[partition] = max(end, found.get(partition, 0))
    return found
