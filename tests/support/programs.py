"""The programs of a schedule with clocks that jump, their lives and their records: for clock_schedules.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from support.schedules import TopicRecord

Counted = dict[tuple[str, str, str], int]
"""(app, type, name) → count, or the highest position"""


class Appended(NamedTuple):
    """A record with the real time at which it was appended, epoch ms."""

    record: TopicRecord
    real_ms: int


class Sent(NamedTuple):
    """A record in flight, with the counts of its program."""

    arrives_ms: int
    order: int
    program: Program
    life: Life
    part: int
    partition: int
    value: bytes
    counted: Counted


@dataclass(eq=False)
class Life:
    """A life as its program knows it.

    `base` has the counts of earlier lives, `accepted` the newest accepted counts, and `contributes` those of them that
    no tombstone or forget record has removed.
    """

    ulid: str
    born_ms: int
    base: Counted
    prev: int | None = None
    seqs: dict[int, int] = field(default_factory=dict)
    accepted: Counted = field(default_factory=dict)
    contributes: Counted = field(default_factory=dict)
    refused_ms: int | None = None


@dataclass(eq=False)
class Program:
    """A process of an application. Its snapshots have this many `parts`. It has stopped publishing `dropped` types."""

    instance: str
    app: str
    every_ms: int
    parts: int
    kinds: list[str]
    skew_ms: int
    counts: Counted = field(default_factory=dict)
    life: Life | None = None
    away_until_ms: int = 0
    dropped: set[str] = field(default_factory=set)


@dataclass
class Played:
    """The records of a schedule with their real times, and the counts that the programs know to be accepted."""

    appended: list[Appended]
    counted: Counted
    partitions: int
    ends_ms: int
    refused: set[tuple[int, int]]
    features: set[str]

    @property
    def records(self) -> list[TopicRecord]:
        """The records in the order of appending."""
        return [one.record for one in self.appended]
