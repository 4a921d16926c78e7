"""Compares the newest sums, the dead letters and the events with a replay of the records up to the same positions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream_aggregator.verify.published import unequal
from tallystream_aggregator.verify.sums import sum_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream_aggregator.verify.advance import Advance
    from tallystream_aggregator.verify.decode import Identity
    from tallystream_aggregator.verify.published import Ends, Event, Place, PublishedSums


class Difference(NamedTuple):
    """A field of a sum in which the replay differs, or a dead letter or an event. None means absent."""

    identity: Identity | None
    field: str
    published: Any
    replayed: Any
    ends: Ends | None


@dataclass(slots=True)
class Outcome:
    """The result of a comparison.

    `records` is the number of replayed records, `sums` that of compared sums, and `letters` and `events` those of the
    dead letters and events that both the topic and the replay have, None if some were deleted. `moved` counts instances
    with records in several partitions, whose events were not compared. `unreadable` counts records of `metrics-agg`
    that are not sums.
    """

    ends: Ends = field(default_factory=dict)
    records: int = 0
    sums: int = 0
    letters: int | None = None
    events: int | None = None
    moved: int = 0
    unreadable: int = 0
    differences: list[Difference] = field(default_factory=list)


def compare(
    advance: Advance,
    sums: PublishedSums,
    *,
    letters: Mapping[Place, int] | None = None,
    events: Mapping[Event, int] | None = None,
) -> Outcome:
    """Compare what was published up to the end of `sums` with the replay, which has applied the records up to there.

    Args:
        advance: the replay.
        sums: the published sums.
        letters: how many dead letters each record has, None if dead letters were deleted.
        events: how often each event is there, None if events were deleted.
    """
    outcome = Outcome(dict(sums.end), advance.records, len(sums.newest), unreadable=sums.unreadable)
    outcome.differences += _sums(advance, sums)
    if letters is not None:
        outcome.letters = _counts(outcome, advance, "dead letters", (letters, advance.letters), advance.reasons.get)
    if events is not None:
        moved = advance.replay.noted.moved
        # Those of an instance in several partitions depend on which one was read first.
        published, made = (
            {event: n for event, n in found.items() if event[4] not in moved} for found in (events, advance.events)
        )
        outcome.events = _counts(outcome, advance, "events", (published, made), _text)
        outcome.moved = len(moved)
    return outcome


def _sums(advance: Advance, sums: PublishedSums) -> Iterator[Difference]:
    """Compare the newest sum of every metric. A change that was not published is a difference.

    A metric that no life has needs no sum, nor a gauge that only forgotten lives had: its sum is empty, and a
    table that was made again from its rows does not know it.
    """
    replayed, instances = advance.replay.held(), advance.replay.instances()
    for identity in dict.fromkeys([*sums.newest, *replayed, *instances]):
        row, held = sums.newest.get(identity), replayed.get(identity, [])
        if row is not None:
            found = unequal(row.fields, instances.get(identity) or sum_of(identity[1], held))
            yield from (Difference(identity, name, *pair, row.ends) for name, pair in found.items())
        elif held or identity in instances:
            yield Difference(identity, "sum", None, "published", sums.end)


def _counts(
    outcome: Outcome,
    advance: Advance,
    field: str,
    counted: tuple[Mapping[Any, int], Mapping[Any, int]],
    describe: Callable[[Any], str | None],
) -> int:
    """Compare what the replayed records have, published and replayed, and return how many both have."""
    published, replayed = counted
    both = 0
    for one in sorted({*published, *replayed}):
        partition, offset = one[:2]
        if not advance.begin.get(partition, 0) <= offset < outcome.ends.get(partition, 0):
            continue
        found, wanted = published.get(one, 0), replayed.get(one, 0)
        both += min(found, wanted)
        if found != wanted:
            where = f"{partition.replace(':', ', partition ')}, offset {offset}"
            theirs, ours = (f"{n}, {where}: {describe(one) or '-'}" if n else None for n in (found, wanted))
            outcome.differences.append(Difference(None, field, theirs, ours, None))
    return both


def _text(event: Event) -> str:
    return " ".join(str(part) for part in event[2:] if part != "")
