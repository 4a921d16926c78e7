"""Undo compaction for some instances: a table can't tell that the records that were left out change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tallystream.aggregator.table.inputs import Record


class ExpansionNeededError(Exception):
    """Records supersede others, and the table did not accept what came before these: read `instances` again."""

    def __init__(self, instances: set[str]) -> None:
        super().__init__(f"the records of {len(instances)} instances are read again without compaction")
        self.instances = instances


class Span(NamedTuple):
    """Offsets `first` to `last`, both included, of one partition."""

    topic: str
    partition: int
    first: int
    last: int


def expand(records: Sequence[Record], instances: set[str], read: Callable[[Span], Iterable[Record]]) -> list[Record]:
    """Return the records of a batch with every record of `instances` that compaction left out.

    `read` returns all records of a span, in offset order, as the topic has them, and raises where it can't.
    """
    keys = {instance.encode() for instance in instances}
    compacted: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record.key in keys:
            compacted.setdefault((record.topic, record.partition), []).append(record)
    whole = [record for record in records if record.key not in keys]
    for (topic, partition), mine in compacted.items():
        mine.sort(key=lambda record: record.offset)
        reread = read(Span(topic, partition, mine[0].offset, mine[-1].offset))
        whole += [record for record in _with_clock(reread, mine[0].clock_ms) if record.key in keys]
    return whole


def _with_clock(records: Iterable[Record], clock: int) -> Iterator[Record]:
    """Give records the partition's clock: those that moved it may have been left out."""
    for record in records:
        clock = max(clock, record.timestamp_ms)
        yield record._replace(clock_ms=clock)
