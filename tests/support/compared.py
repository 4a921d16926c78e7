"""Judges a comparison by the journals of the processes that sent, worked and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from tallystream_dashboards.data.bounds import Bounds
from tallystream_dashboards.data.compare import Comparison


class Journal(Protocol):
    """What was done to the records of a topic, by partition and offset; `markers` are the offsets without a record."""

    worked: Counter[tuple[int, int]]
    markers: set[tuple[int, int]]

    def counted(self) -> Counter[tuple[int, int]]:
        """Return how often each record is in what was published."""


class Truth(NamedTuple):
    """What became of the records at the offsets that anybody has published."""

    sent: int
    counted: int
    lost: int
    in_flight: int
    twice: int
    processed_twice: int


def truth(journal: Journal, found: Comparison) -> Truth:
    """Return the truth by the journals, about the offsets that the comparison speaks of."""
    counted = journal.counted()
    sent: set[tuple[int, int]] = set()
    ahead: set[tuple[int, int]] = set()
    for place, known, processed in found.partitions:
        records = {(int(place.partition), offset) for offset in range(*known)} - journal.markers
        sent |= records
        ahead |= {(partition, offset) for partition, offset in records if offset >= processed.end} - counted.keys()
    lost = sent - ahead - counted.keys()
    return Truth(len(sent), counted.total(), len(lost), len(ahead), repeated(counted), repeated(journal.worked))


def repeated(times: Counter[tuple[int, int]]) -> int:
    """Return how often records occur beyond their first time."""
    return times.total() - len(times)


def contains(bounds: Bounds, number: int) -> bool:
    """Return whether a number is within its bounds."""
    return bounds.at_least <= number and (bounds.at_most is None or number <= bounds.at_most)


def wrong(journal: Journal, found: Comparison, names: Iterable[str] = Truth._fields) -> list[str]:
    """Return the numbers that are not within their bounds."""
    true = truth(journal, found)
    assert true.sent + true.twice == true.counted + true.lost + true.in_flight
    return [
        f"{name}: {getattr(true, name)}, not {getattr(found, name)}"
        for name in names
        if not contains(getattr(found, name), getattr(true, name))
    ]


def too_high(journal: Journal, found: Comparison) -> list[str]:
    """Return the numbers of records lost or repeated that are certain, and are not true."""
    true, names = truth(journal, found), ("lost", "twice", "processed_twice")
    return [name for name in names if getattr(true, name) < getattr(found, name).at_least]
