"""Compares each published sum with a replay of the records up to the offsets of that sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream_aggregator.verify.lives import STAYING
from tallystream_aggregator.verify.published import Moment, Unequal, unequal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tallystream_aggregator.verify.advance import Advance, Event, Place
    from tallystream_aggregator.verify.decode import Identity
    from tallystream_aggregator.verify.published import Ends, PartitionName, PublishedSum
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
    dead letters and events that both the topic and the replay have. `between` counts sums of several shards that were
    not compared, because the positions of the shards at their moment are not known any more. `compacted` counts metrics
    whose only sum left is later than the period. `moved` counts instances with records in several partitions, whose
    events were not compared. `unreadable` counts records of `metrics-agg` that are not sums.
    `letters_checked` is False if dead letters were deleted, and `events_checked` if events were. `complete` is true if
    the check that everything was published was made.
    """

    ends: Ends = field(default_factory=dict)
    records: int = 0
    sums: int = 0
    letters: int = 0
    events: int = 0
    between: int = 0
    compacted: int = 0
    moved: int = 0
    unreadable: int = 0
    letters_checked: bool = True
    events_checked: bool = True
    complete: bool = False
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
        self._tags = {replay.tags, *tags}
        self._waiting: dict[Any, list[PublishedSum]] = {}  # by the offsets that they name
        self._compared: set[int] = set()
        self.outcome = Outcome(letters_checked=letters is not None, events_checked=events is not None)

    def run(
        self,
        sums: Sequence[PublishedSum],
        newest: Mapping[Identity, PublishedSum],
        later: Collection[Identity] = (),
        *,
        end: Moment | None = None,
        moments: Sequence[Moment] | None = None,
    ) -> Outcome:
        """Compare each of `sums` at its own offsets, and the `newest` sum of each metric at the moment `end`.

        A table of several shards has had these `moments`, in order, and `end` is one of them. One shard has had those
        that its sums name. `later` are the metrics that have a sum after `end`.
        """
        for one in sums:
            if one.ends is None:
                self._differ(one.identity, [Unequal("offsets", None, "those of a step")], None)
            else:
                self._waiting.setdefault(_key(one.ends), []).append(one)
        if moments is None:
            named = {key: Moment((dict(key),)) for key in self._waiting} | ({_key(end.ends): end} if end else {})
            moments = sorted(named.values(), key=lambda moment: sum(moment.ends.values()))
        for moment, following in zip(moments, [*moments[1:], None], strict=False):
            self._compare(moment, following, end)
            if moment is end and self.outcome.complete:
                self._compared.update(map(id, newest.values()))
                self._all_published(end, newest, later)
        left = [one for found in self._waiting.values() for one in found if id(one) not in self._compared]
        self.outcome.between, self.outcome.sums = len(left), len(self._compared)
        self.outcome.ends, self.outcome.records = dict(self._advance.at), self._advance.records
        if moments:
            ends = (end or moments[-1]).ends
            advance, reasons = self._advance, self._advance.reasons
            if self._letters is not None:
                found = self._compare_counts("dead letters", self._letters, advance.letters, ends, reasons.get)
                self.outcome.letters = found
            if self._events is not None:
                pairs = (self._of_one_partition(one) for one in (self._events, advance.events))
                self.outcome.events = self._compare_counts("events", *pairs, ends, _text)
                self.outcome.moved = len(self._replay.moved)
        return self.outcome

    def _compare(self, moment: Moment, following: Moment | None, end: Moment | None) -> None:
        """Compare the sums that name the offsets of a moment."""
        key = _key(moment.ends)
        found = self._waiting.pop(key, [])
        if not self._advance.to(moment):
            for one in found:
                self._differ(one.identity, [Unequal("offsets", one.fields["offsets"], "those of a step")], one.ends)
            return
        self._compared.update(map(id, found))
        self.outcome.complete |= moment is end
        differing = self._differing(found, end)
        if following is not None and _key(following.ends) == key:
            # It names the same offsets, and some shards have read more there.
            self._waiting[key] = [one for one, _ in differing]
        else:
            for one, unequals in differing:
                self._differ(one.identity, unequals, one.ends)

    def _differing(self, sums: Sequence[PublishedSum], end: Moment | None) -> list[tuple[PublishedSum, list[Unequal]]]:
        """Return the sums that differ now, with the fields. The tags of sums may have been others before."""
        current = self._replay.tags if end is None else end.tags
        differing: list[tuple[PublishedSum, list[Unequal]]] = [(one, []) for one in sums]
        for tags in [*(self._tags - {current}), current]:
            if differing:
                self._replay.tags = tags
                found = [(one, self._found(one)) for one, _ in differing]
                differing = [(one, unequals) for one, unequals in found if unequals]
        return differing

    def _found(self, one: PublishedSum) -> list[Unequal]:
        return unequal(one.fields, self._replay.sum(one.identity))

    def _all_published(self, end: Moment, newest: Mapping[Identity, PublishedSum], later: Collection[Identity]) -> None:
        """Compare the newest sum of every metric with the replay. A change that was not published is a difference.

        A metric that no life has needs no sum, nor a gauge that only forgotten lives have: its sum is empty, and a
        table that was made again from its rows does not know it.
        """
        reported = {one.identity for one in self.outcome.differences}
        reported |= {one.identity for one in self._waiting.get(_key(end.ends), ())}  # compared again
        self._replay.tags = end.tags
        for identity in {**dict.fromkeys(self._replay.identities()), **dict.fromkeys(newest)}:
            row = newest.get(identity)
            if row is None and identity in later:
                self.outcome.compacted += 1
            elif identity in reported:
                continue
            elif row is not None:
                self._differ(identity, self._found(row), end.ends)
            elif any(not life.forgotten or identity[1] in STAYING for life, _ in self._replay.rows(identity)):
                self._differ(identity, [Unequal("sum", None, "published")], end.ends)

    def _of_one_partition(self, events: Mapping[Event, int]) -> dict[Event, int]:
        """Return the events without those of instances that were read in several partitions."""
        return {event: n for event, n in events.items() if event[4] not in self._replay.moved}

    def _compare_counts(
        self,
        field: str,
        published: Mapping[Any, int],
        replayed: Mapping[Any, int],
        ends: Ends,
        describe: Callable[[Any], str | None],
    ) -> int:
        """Compare what records up to these offsets have, each exactly once, and return how many both have."""
        both = 0
        for one in sorted({*published, *replayed}):
            partition, offset = one[:2]
            if not self._begin.get(partition, 0) <= offset < ends.get(partition, 0):
                continue
            found, wanted = published.get(one, 0), replayed.get(one, 0)
            both += min(found, wanted)
            if found != wanted:
                where = f"{partition.replace(':', ', partition ')}, offset {offset}"
                texts = [f"{n}, {where}: {describe(one) or '-'}" if n else None for n in (found, wanted)]
                self._differ(None, [Unequal(field, *texts)], None)
        return both

    def _differ(self, identity: Identity | None, found: Iterable[Unequal], ends: Ends | None) -> None:
        self.outcome.differences += [Difference(identity, *one, ends) for one in found]


def _key(ends: Ends) -> tuple[tuple[PartitionName, int], ...]:
    return tuple(sorted((partition, end) for partition, end in ends.items() if end))


def _text(event: Event) -> str:
    return " ".join(str(part) for part in event[2:] if part != "")
