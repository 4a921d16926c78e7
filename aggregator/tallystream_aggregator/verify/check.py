"""The comparison: replays the records up to where each published sum was made, and compares it there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream_aggregator.verify.compare import LASTING, Unequal, unequal, unequal_between
from tallystream_aggregator.verify.sums import STAYING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tallystream_aggregator.verify.decode import Identity, Raw
    from tallystream_aggregator.verify.published import Ends, Place, TableRecord
    from tallystream_aggregator.verify.replay import Replay
    from tallystream_aggregator.verify.silence import Batch


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

    `undetermined`: sums whose living lives depend on batches that the ledger does not have, compared in all else.
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
    must have been published. None: no batch is known. `batches` are those of the ledger up to there, in order.
    """

    def __init__(
        self,
        replay: Replay,
        begin: Ends,
        end: Ends | None,
        until: Callable[[Place, int], Iterable[Raw]],
        *,
        batches: Sequence[Batch] = (),
        letters: set[tuple[Place, int]] | None = None,
        on_record: Callable[[int], None] = lambda _records: None,
    ) -> None:
        self._replay = replay
        self._begin = begin
        self._at = dict(begin)
        self._end = end
        self._until = until
        self._batches = batches
        self._letters = letters
        self._on_record = on_record
        self._is_between = False  # records of batches that the ledger does not have were replayed since the last one
        self.outcome = Outcome(letters_checked=letters is not None)

    def run(
        self, rows: Sequence[TableRecord], newest: Mapping[Identity, TableRecord], later: set[Identity], highs: Ends
    ) -> Outcome:
        """Compare `rows` where each was made, and at `end` the `newest` of each metric with all that there is.

        `later` are metrics of which there is a sum beyond `end`; `highs` are the topic's ends: no sum can include more.
        """
        made_in = _Numbers(self._batches)
        by_batch: dict[int, list[TableRecord]] = {}
        by_ends: dict[tuple[tuple[Place, int], ...], list[TableRecord]] = {}
        for row in rows:
            if row.ends is None or not row.within(highs):
                self._differ(
                    row.identity, [Unequal("offsets", row.fields.get("offsets"), "within the topic")], row.ends
                )
            elif (number := made_in.of(row)) is not None:
                by_batch.setdefault(number, []).append(row)
            else:
                by_ends.setdefault(tuple(sorted(row.ends.items())), []).append(row)
        if self._batches:
            self._replay.begin(self._batches[0])
        elif self._end is not None:
            by_ends.setdefault(tuple(sorted(self._end.items())), [])
        self._replay_all(by_batch, by_ends, newest, later)
        return self.outcome

    def _replay_all(
        self,
        by_batch: Mapping[int, list[TableRecord]],
        by_ends: Mapping[tuple[tuple[Place, int], ...], list[TableRecord]],
        newest: Mapping[Identity, TableRecord],
        later: set[Identity],
    ) -> None:
        """Replay, and compare the sums by the index of their batch, and those that the ledger does not know."""
        others = sorted(by_ends, key=_number_of_records)[::-1]
        for number, batch in enumerate(self._batches):
            size = _number_of_records(batch.end.items())
            while others and _number_of_records(others[-1]) <= size:
                key = others.pop()
                self._between(dict(key), by_ends[key], batch)
            self._batch(batch, by_batch.get(number, []), first=not number)
            if number == len(self._batches) - 1:
                self._all_published(newest, later)
        while others:
            key = others.pop()
            self._between(dict(key), by_ends[key], None)
            if not self._batches and dict(key) == self._end:
                self._all_published(newest, later)

    def _batch(self, batch: Batch, rows: list[TableRecord], *, first: bool) -> None:
        """Replay a batch of the ledger, and compare the sums that it published."""
        if not self._is_ahead(batch.end):
            self.outcome.unordered += len(rows)
            return
        start = batch.start or {}
        if self._is_between or any(begin > self._at.get(partition, 0) for partition, begin in start.items()):
            self._advance(start)
            self._replay.silence.lost(batch.ts_ms)
            self._is_between = False
        if batch.begins and not first:
            self._replay.begin(batch)
        self._advance(batch.end)
        self._replay.silence.judge(batch)
        for row in rows:
            self._compare(row, 0)

    def _between(self, ends: Ends, rows: list[TableRecord], following: Batch | None) -> None:
        """Compare sums of a batch that the ledger does not have, unless the one that follows does not include it."""
        if not self._is_ahead(ends) or (
            following is not None and any(end > following.end.get(partition, 0) for partition, end in ends.items())
        ):
            self.outcome.unordered += len(rows)
            return
        self._advance(ends)
        self._is_between = True
        for row in rows:
            self._compare(row, row.ts_ms)

    def _is_ahead(self, ends: Ends) -> bool:
        return all(at <= ends.get(partition, self._begin.get(partition, 0)) for partition, at in self._at.items())

    def _advance(self, ends: Ends) -> None:
        for partition, end in ends.items():
            for record in self._until(partition, end):
                refused = self._replay.apply(partition, record.timestamp_ms, record.key, record.value)
                self._letter(partition, record.offset, refused)
                self.outcome.records += 1
                self._on_record(self.outcome.records)
            self._at[partition] = max(end, self._at.get(partition, 0))
        self.outcome.ends = dict(self._at)

    def _compare(self, row: TableRecord, at_ms: int) -> None:
        self.outcome.sums += 1
        found, undetermined = self._found(row, at_ms)
        self.outcome.undetermined += undetermined
        self._differ(row.identity, found, row.ends)

    def _found(self, row: TableRecord, at_ms: int) -> tuple[list[Unequal], bool]:
        """Return the fields that differ, whatever was forgotten when, and whether some can't be told."""
        for forgotten in (True, False):
            noticed = self._replay.sum(row.identity, at_ms, forgotten=forgotten)
            unnoticed = self._replay.sum(row.identity, forgotten=forgotten, noticed=False)
            found, undetermined = unequal_between(row.fields, noticed, unnoticed)
            if not found:
                return [], undetermined
        if self._replay.open_lives(row.identity) > 1:  # some of them may count and others not
            none, every = (self._replay.sum(row.identity, at_ms, forgotten=forgotten) for forgotten in (False, True))
            return unequal_between(row.fields, none, every)
        return found, undetermined

    def _all_published(self, newest: Mapping[Identity, TableRecord], later: set[Identity]) -> None:
        """Compare all that there is: a sum that moved on after its last row was not published when it should have been.

        Where no batch is known, it is not known when silence was noticed, and what depends on it is not compared.
        """
        self.outcome.complete = True
        differing = {one.identity for one in self.outcome.differences}
        for identity in self._replay.identities():
            row = newest.get(identity)
            if row is None and identity in later:
                self.outcome.compacted += 1
                continue
            if identity in differing or (row is not None and not row.within(self._end or {})):
                continue
            if row is None:
                self._differ(identity, [Unequal("sum", None, "published")], self._end)
            elif self._batches:
                self._differ(identity, self._found(row, 0)[0], self._end)
            elif identity[1] in STAYING:
                both = [self._replay.sum(identity, forgotten=forgotten) for forgotten in (True, False)]
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


class _Numbers:
    """Finds the batch of the ledger that made a sum."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        self._numbers: dict[int, list[int]] = {}
        for number, batch in enumerate(batches):
            self._numbers.setdefault(batch.number, []).append(number)

    def of(self, row: TableRecord) -> int | None:
        """Return the index of the batch, None where the ledger does not have it.

        The ledger may have a batch under the epoch of a later writer, which found it finished.
        """
        epoch, batch_number = row.written
        for number in self._numbers.get(batch_number, ()):
            batch = self._batches[number]
            # The first batch of a rebuilt table publishes all that it has; else a sum includes a record of its batch.
            moved = batch.start is None or not row.within(batch.start) or (batch.begins and epoch == batch.epoch)
            if epoch <= batch.epoch and row.within(batch.end) and moved:
                return number
        return None


def _number_of_records(ends: Iterable[tuple[Place, int]]) -> int:
    return sum(end for _, end in ends)
