"""Take the records of some instances one by one, where a table could not tell that what was dropped changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tallystream.aggregator.table.inputs import Record


class Unfoldable(Exception):  # noqa: N818  (a verdict on the batch, nothing that went wrong)
    """Records stand for others, and the table does not have what they follow: `instances` are to be taken whole."""

    def __init__(self, instances: set[str]) -> None:
        super().__init__(f"the records of {len(instances)} instances are to be taken one by one")
        self.instances = instances


class Span(NamedTuple):
    """Offsets `first` to `last`, both included, of one partition."""

    topic: str
    partition: int
    first: int
    last: int


def unfolded(records: Sequence[Record], instances: set[str], read: Callable[[Span], Iterable[Record]]) -> list[Record]:
    """Return the records of a batch with every one of `instances` that was dropped among them.

    `read` returns all records of a span, in offset order, as the topic has them. What it can't read it must raise.
    """
    keys = {instance.encode() for instance in instances}
    found: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record.key in keys:
            found.setdefault((record.topic, record.partition), []).append(record)
    whole = [record for record in records if record.key not in keys]
    for (topic, partition), mine in found.items():
        mine.sort(key=lambda record: record.offset)
        again = read(Span(topic, partition, mine[0].offset, mine[-1].offset))
        whole += [record for record in _with_clock(again, mine[0].clock_ms) if record.key in keys]
    return whole


def _with_clock(records: Iterable[Record], clock: int) -> Iterator[Record]:
    """Give records the partition's clock: those that moved it may have been dropped."""
    for record in records:
        clock = max(clock, record.timestamp_ms)
        yield record._replace(clock_ms=clock)
