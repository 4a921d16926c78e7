"""Compares each published sum with a replay of the records up to the offsets of that sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream_aggregator.verify.published import Moment, Unequal, unequal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tallystream_aggregator.verify.advance import Advance
    from tallystream_aggregator.verify.decode import Identity
    from tallystream_aggregator.verify.published import Ends, Event, PartitionName, Place, PublishedSum, PublishedSums
    from tallystream_aggregator.verify.replay import Replay
    from tallystream_aggregator.verify.tags import Tags


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
    dead letters and events that both the topic and the replay have, None if some were deleted. `between` counts sums of
    several shards that were not compared, because the positions of the shards at their moment are not known any more.
    `moved` counts instances with records in several partitions, whose events were not compared. `unreadable` counts
    records of `metrics-agg` that are not sums.
    """

    ends: Ends = field(default_factory=dict)
    records: int = 0
    sums: int = 0
    letters: int | None = None
    events: int | None = None
    between: int = 0
    moved: int = 0
    unreadable: int = 0
    differences: list[Difference] = field(default_factory=list)


class Check:
    """Compares sums with a replay, from moment to moment.

    Args:
        advance: the replay, at the offsets at which the table began.
        replay: the same.
        letters: how many dead letters each record has, None if dead letters were deleted.
        events: how often each event is there, None if events were deleted.
        tags: those that sums may have had, beside those of the moment at which everything is compared.
    """

    def __init__(
        self,
        advance: Advance,
        replay: Replay,
        *,
        letters: Mapping[Place, int] | None = None,
        events: Mapping[Event, int] | None = None,
        tags: Collection[Tags] = (),
    ) -> None:
        self._advance, self._replay = advance, replay
        self._begin = dict(advance.at)
        self._letters, self._events = letters, events
        self._tags = [*({*tags} - {replay.tags}), replay.tags]
        self.outcome = Outcome()

    def run(self, sums: PublishedSums, end: Moment, moments: Sequence[Moment] | None = None) -> Outcome:
        """Compare the sums at their own offsets, and the newest sum of each metric at the moment `end`.

        A table of several shards has had these `moments`, in order, and `end` is one of them. One shard has had those
        that its sums name.
        """
        waiting: dict[Any, dict[PublishedSum, Unequal | None]] = {}  # by their offsets; None: not compared yet
        for one in sums.to_compare():
            waiting.setdefault(_key(one.ends), {})[one] = None
        if moments is None:
            others = [Moment((dict(key),)) for key in waiting.keys() - {_key(end.ends)}]
            moments = sorted([*others, end], key=lambda moment: sum(moment.ends.values()))
        at_end: list[Difference] = []
        for moment in moments:
            found = waiting.get(_key(moment.ends), {})
            if not found and moment is not end:
                continue
            if self._advance.to(moment):
                # At the same offsets, some of several shards may have read more at a later moment.
                found.update({one: self._unequal(one) for one, differing in found.items() if differing != {}})
            else:
                found.update({one: {"offsets": (one.fields["offsets"], "those of a step")} for one in found})
            if moment is end:
                at_end = self._at_end(sums.newest, found, end.ends)
        compared = {one: differing for found in waiting.values() for one, differing in found.items()}
        outcome = self.outcome
        for one, differing in compared.items():
            outcome.differences += _differences(one.identity, differing or {}, one.ends)
        reported = {one.identity for one in outcome.differences}
        outcome.differences += [one for one in at_end if one.identity not in reported]
        missed = {one for one, differing in compared.items() if differing is None} - {*sums.newest.values()}
        outcome.between, outcome.sums = len(missed), len({*compared, *sums.newest.values()} - missed)
        outcome.ends, outcome.records = dict(self._advance.at), self._advance.records
        self._compare_letters(end.ends)
        return outcome

    def _unequal(self, one: PublishedSum) -> Unequal:
        """Return the fields in which a sum differs from the replay now. The tags may have been others before."""
        found: Unequal = {}
        for tags in self._tags:
            found = unequal(one.fields, self._replay.sum(one.identity, tags))
            if not found:
                break
        return found

    def _at_end(
        self,
        newest: Mapping[Identity, PublishedSum],
        differing: Mapping[PublishedSum, Unequal | None],
        ends: Ends,
    ) -> list[Difference]:
        """Compare the newest sum of every metric with the replay. A change that was not published is a difference.

        A metric that no life has needs no sum, nor a gauge that only forgotten lives had: its sum is empty, and a
        table that was made again from its rows does not know it. The sums that are `differing` are compared elsewhere.
        """
        differences: list[Difference] = []
        for identity in {**dict.fromkeys(self._replay.identities()), **dict.fromkeys(newest)}:
            row, found = newest.get(identity), Unequal()
            if row is None:
                if any(self._replay.rows(identity)):
                    found = {"sum": (None, "published")}
            elif not differing.get(row):
                found = unequal(row.fields, self._replay.sum(identity))
            differences += _differences(identity, found, ends)
        return differences

    def _compare_letters(self, ends: Ends) -> None:
        """Compare the dead letters and events of the records below these offsets."""
        advance, moved = self._advance, self._replay.moved
        if self._letters is not None:
            self.outcome.letters = self._compare_counts(
                "dead letters", self._letters, advance.letters, ends, advance.reasons.get
            )
        if self._events is not None:
            # Those of an instance in several partitions depend on which one was read first.
            published, made = (
                {event: n for event, n in events.items() if event[4] not in moved}
                for events in (self._events, advance.events)
            )
            self.outcome.events = self._compare_counts("events", published, made, ends, _text)
            self.outcome.moved = len(moved)

    def _compare_counts(
        self,
        field: str,
        published: Mapping[Any, int],
        replayed: Mapping[Any, int],
        ends: Ends,
        describe: Callable[[Any], str | None],
    ) -> int:
        """Compare what records below these offsets have, each exactly once, and return how many both have."""
        both = 0
        for one in sorted({*published, *replayed}):
            partition, offset = one[:2]
            if not self._begin.get(partition, 0) <= offset < ends.get(partition, 0):
                continue
            found, wanted = published.get(one, 0), replayed.get(one, 0)
            both += min(found, wanted)
            if found != wanted:
                where = f"{partition.replace(':', ', partition ')}, offset {offset}"
                theirs, ours = (f"{n}, {where}: {describe(one) or '-'}" if n else None for n in (found, wanted))
                self.outcome.differences.append(Difference(None, field, theirs, ours, None))
        return both


def _differences(identity: Identity, found: Unequal, ends: Ends) -> list[Difference]:
    return [Difference(identity, name, *pair, ends) for name, pair in found.items()]


def _key(ends: Ends) -> tuple[tuple[PartitionName, int], ...]:
    return tuple(sorted((partition, end) for partition, end in ends.items() if end))


def _text(event: Event) -> str:
    return " ".join(str(part) for part in event[2:] if part != "")
