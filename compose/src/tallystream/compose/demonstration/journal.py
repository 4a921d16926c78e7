"""Reading the journals: what the applications say they processed, without any of Tallystream's code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Journal(NamedTuple):
    """One journal: that of one process, from its start to its end.

    `acknowledged` is the count that the broker last acknowledged; `runs` are (partition, first, last) offsets.
    """

    processed: int = 0
    acknowledged: int = 0
    runs: tuple[tuple[int, int, int], ...] = ()
    assignments: int = 0
    held: bool = False


def read(path: Path) -> Journal:
    """Return what a journal says so far; a last line that is still being written is left for the next time."""
    if not path.exists():
        return Journal()
    text = path.read_text(encoding="utf-8")
    entries = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    counts = [entry["acknowledged"] for entry in entries if "acknowledged" in entry]
    return Journal(
        processed=sum(entry.get("processed", 0) for entry in entries),
        acknowledged=counts[-1] if counts else 0,
        runs=tuple((partition, first, last) for entry in entries for partition, first, last in entry.get("runs", ())),
        assignments=sum(bool(entry.get("assigned")) for entry in entries),
        held=any(entry.get("hold", False) for entry in entries),
    )


def distinct(journals: Iterable[Journal]) -> int:
    """Return how many different records were processed, by all together."""
    runs = sorted(run for journal in journals for run in journal.runs)
    total, at_partition, covered = 0, -1, -1
    for partition, first, last in runs:
        if partition != at_partition:
            at_partition, covered = partition, -1
        total += max(0, last - max(first - 1, covered))
        covered = max(covered, last)
    return total
