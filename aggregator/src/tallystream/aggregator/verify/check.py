"""The comparison: replays the records up to where each published sum was made, and compares it there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream.aggregator.verify.compare import LASTING, Unequal, unequal, unequal_between
from tallystream.aggregator.verify.summing import STAYING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tallystream.aggregator.verify.published import Ends, Place, Published
    from tallystream.aggregator.verify.reading import Identity, Raw
    from tallystream.aggregator.verify.replay import Replay


class Difference(NamedTuple):
    """One field of one sum, or a dead letter, that is not what the replay says; None where there is nothing."""

    identity: Identity | None
    field: str
    published: Any
    replayed: Any
    ends: Ends | None


@dataclass(slots=True)
class Outcome:
    """What was found. `records` were replayed, `sums` compared, `letters` are the dead letters that both have.

    `undetermined`: sums whose living lives depend on when silence was noticed, compared in everything else.
    `unordered`: sums not compared, as their offsets lie across those of another writer's batches. `compacted`: metrics
    of which only a sum later than the period is left. `letters_checked` is False where dead letters were deleted;
    `complete` tells whether it was checked that everything was published.
    """

    ends: Ends = field(default_factory=dict)
    records: int = 0
    sums: int = 0
    letters: int = 0
    undetermined: int = 0
    unordered: int = 0
    compacted: int = 0
    unreadable: int = 0
    letters_checked: bool = True
    complete: bool = False
    differences: list[Difference] = field(default_factory=list)


class Check:
    """Replays and compares. `until(partition, end)` gives a partition's records up to an offset, in order, once.

    `end` is where the last batch known to be finished ended: up to there, every dead letter and every sum that lasts
    must have been published. None: no batch is known.
    """

    def __init__(
        self,
        replay: Replay,
        begin: Ends,
        end: Ends | None,
        until: Callable[[Place, int], Iterable[Raw]],
        *,
        letters: set[tuple[Place, int]] | None = None,
        on_record: Callable[[int], None] = lambda _records: None,
    ) -> None:
        self._replay = replay
        self._begin = begin
        self._at = dict(begin)
        self._end = end
        self._until = until
        self._letters = letters
        self._on_record = on_record
        self.outcome = Outcome(letters_checked=letters is not None)

    def run(
        self, rows: Sequence[Published], newest: Mapping[Identity, Published], later: set[Identity], highs: Ends
    ) -> Outcome:
        """Compare `rows` where each was made, and at `end` the `newest` of each metric with all that there is.

        `later` are metrics of which there is a sum beyond `end`; `highs` are the topic's ends: no sum can include more.
        """
        by_ends: dict[tuple[tuple[Place, int], ...], list[Published]] = {}
        for row in rows:
            if row.ends is None or not row.within(highs):
                self._differ(
                    row.identity, [Unequal("offsets", row.fields.get("offsets"), "within the topic")], row.ends
                )
            else:
                by_ends.setdefault(tuple(sorted(row.ends.items())), []).append(row)
        if self._end is not None:
            by_ends.setdefault(tuple(sorted(self._end.items())), [])
        for key in sorted(by_ends, key=lambda key: sum(end for _, end in key)):
            ends = dict(key)
            if any(at > ends.get(partition, self._begin.get(partition, 0)) for partition, at in self._at.items()):
                self.outcome.unordered += len(by_ends[key])
                continue
            self._advance(ends)
            for row in by_ends[key]:
                self._compare(row)
            if ends == self._end:
                self._all_published(newest, later)
                self.outcome.complete = True
        return self.outcome

    def _advance(self, ends: Ends) -> None:
        for partition, end in ends.items():
            for record in self._until(partition, end):
                refused = self._replay.apply(partition, record.timestamp_ms, record.key, record.value)
                self._letter(partition, record.offset, refused)
                self.outcome.records += 1
                self._on_record(self.outcome.records)
            self._at[partition] = max(end, self._at.get(partition, 0))
        self.outcome.ends = dict(self._at)

    def _compare(self, row: Published) -> None:
        self.outcome.sums += 1
        found: list[Unequal] = []
        for forgotten in (True, False):
            noticed = self._replay.sum(row.identity, row.ts_ms, forgotten=forgotten)
            unnoticed = self._replay.sum(row.identity, forgotten=forgotten)
            found, undetermined = unequal_between(row.fields, noticed, unnoticed)
            if not found:
                break
        self.outcome.undetermined += undetermined
        self._differ(row.identity, found, row.ends)

    def _all_published(self, newest: Mapping[Identity, Published], later: set[Identity]) -> None:
        """Compare what lasts: a sum that moved on after its last row was not published when it should have been."""
        differing = {one.identity for one in self.outcome.differences}
        for identity in self._replay.identities():
            row = newest.get(identity)
            if row is None and identity in later:
                self.outcome.compacted += 1
                continue
            if identity in differing or (row is not None and not row.within(self._end or {})):
                continue
            both = [self._replay.sum(identity, forgotten=forgotten) for forgotten in (True, False)]
            if row is None:
                self._differ(identity, [Unequal("sum", None, "published")], self._end)
            elif identity[1] in STAYING:
                different = [unequal(row.fields, replayed, LASTING) for replayed in both]
                self._differ(identity, different[1] if all(different) else [], self._end)

    def _letter(self, partition: Place, offset: int, refused: list[str]) -> None:
        if self._letters is None or self._end is None or offset >= self._end.get(partition, 0):
            return
        there = (partition, offset) in self._letters
        where = f"{partition.replace(':', ', partition ')}, offset {offset}"
        if there and refused:
            self.outcome.letters += 1
        elif there:
            self._differ(None, [Unequal("dead letter", where, None)], None)
        elif refused:
            self._differ(None, [Unequal("dead letter", None, f"{where}: {refused[0]}")], None)

    def _differ(self, identity: Identity | None, found: Iterable[Unequal], ends: Ends | None) -> None:
        self.outcome.differences += [Difference(identity, *one, ends) for one in found]
