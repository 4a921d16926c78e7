"""Compares each published sum with a replay of the records up to the offsets of that sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream_aggregator.verify.published import Unequal, unequal
from tallystream_aggregator.verify.tags import Tags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tallystream_aggregator.verify.decode import Identity, RawRecord
    from tallystream_aggregator.verify.published import Batch, Ends, PartitionName, PublishedSum
    from tallystream_aggregator.verify.replay import Replay


class Difference(NamedTuple):
    """A field of a sum, or a dead letter, in which the replay differs. None means absent."""

    identity: Identity | None
    field: str
    published: Any
    replayed: Any
    ends: Ends | None


@dataclass(slots=True)
class Outcome:
    """The result of a comparison.

    `records` is the number of replayed records, `sums` that of compared sums, and `letters` that of the dead letters
    that both the topic and the replay have. `unordered` counts sums that were not compared, because their
    offsets are neither before nor after those of another writer's batch. `compacted` counts metrics whose only sum left
    is later than the period. `unreadable` counts records of `metrics-agg` that are not sums. `lost_letters` counts the
    records without dead letters which a lost checkpoint may have refused before it wrote them. `letters_checked` is
    False if dead letters were deleted. `complete` is true if the check that everything was published was made.
    """

    ends: Ends = field(default_factory=dict)
    records: int = 0
    sums: int = 0
    letters: int = 0
    unordered: int = 0
    compacted: int = 0
    unreadable: int = 0
    lost_letters: int = 0
    letters_checked: bool = True
    complete: bool = False
    differences: list[Difference] = field(default_factory=list)


class Check:
    """Replays records and compares sums.

    `until(partition, end)` returns the next records of a partition with offsets below `end`, each record once. `end` is
    the end of the last batch known to be finished, None if no batch is known: all dead letters and sums up to there
    must have been published. `batches` are the ledger's batches up to there, in order. `letters` are the records with
    dead letters, None if dead letters were deleted. `tags` returns the tags that the sums of a writer have, by its
    epoch, or those of the last writer for None.
    """

    def __init__(
        self,
        replay: Replay,
        begin: Ends,
        end: Ends | None,
        until: Callable[[PartitionName, int], Iterable[RawRecord]],
        *,
        batches: Sequence[Batch] = (),
        letters: set[tuple[PartitionName, int]] | None = None,
        tags: Callable[[int | None], Tags] = lambda _epoch: Tags(),
        on_record: Callable[[int], None] = lambda _records: None,
    ) -> None:
        self._replay = replay
        self._begin = begin
        self._at = dict(begin)
        self._end = end
        self._until = until
        self._batches = batches
        self._letters = letters
        self._tags = tags
        self._on_record = on_record
        self._started: Batch | None = None
        self._is_rebuilt = False  # the next batch of the ledger is the first one of a rebuilt table
        self._is_between = False  # records of a batch that the ledger lacks were replayed since its last batch
        self.outcome = Outcome(letters_checked=letters is not None)

    def run(
        self, rows: Sequence[PublishedSum], newest: Mapping[Identity, PublishedSum], later: set[Identity], highs: Ends
    ) -> Outcome:
        """Compare each of `rows` at its own offsets, and the `newest` sum of each metric at `end`.

        `later` are the metrics that have a sum beyond `end`. `highs` are the topics' end offsets, which bound the
        offsets of every sum.
        """
        index = _BatchIndex(self._batches)
        by_batch: dict[int, list[PublishedSum]] = {}
        by_ends: dict[tuple[tuple[PartitionName, int], ...], list[PublishedSum]] = {}
        for row in rows:
            if row.ends is None or not row.within(highs):
                self._differ(
                    row.identity, [Unequal("offsets", row.fields.get("offsets"), "within the topic")], row.ends
                )
            elif (number := index.batch_of(row)) is not None:
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
        by_batch: Mapping[int, list[PublishedSum]],
        by_ends: Mapping[tuple[tuple[PartitionName, int], ...], list[PublishedSum]],
        newest: Mapping[Identity, PublishedSum],
        later: set[Identity],
    ) -> None:
        """Replay the batches, and compare the sums of each. `by_ends` has the sums of batches that the ledger lacks."""
        others = sorted(by_ends, key=_number_of_records)[::-1]
        for number, batch in enumerate(self._batches):
            self._is_rebuilt = batch.begins and number > 0
            size = _number_of_records(batch.end.items())
            while others and _number_of_records(others[-1]) <= size:
                key = others.pop()
                self._between(dict(key), by_ends[key], batch)
            self._batch(batch, by_batch.get(number, []))
            if number == len(self._batches) - 1:
                self._all_published(newest, later)
        self._is_rebuilt = False
        while others:
            key = others.pop()
            self._between(dict(key), by_ends[key], None)
            if not self._batches and dict(key) == self._end:
                self._all_published(newest, later)

    def _batch(self, batch: Batch, rows: list[PublishedSum]) -> None:
        """Replay a batch of the ledger and compare the sums that it published."""
        if not self._is_ahead(batch.end):
            self.outcome.unordered += len(rows)
            return
        self._start(batch)
        if batch.forget_after_ms:
            self._replay.forget_after(batch.forget_after_ms)
        self._advance(batch.end)
        self._is_between = False
        for row in rows:
            self._compare(row)

    def _start(self, batch: Batch) -> None:
        """Replay up to the start of a batch, once, and process the start of a checkpoint there."""
        if batch is self._started:
            return
        self._started = batch
        start = batch.start or {}
        if self._is_between or any(begin > self._at.get(partition, 0) for partition, begin in start.items()):
            self._advance(start)
        if batch.begins and batch is not self._batches[0]:
            self._replay.begin(batch)

    def _between(self, ends: Ends, rows: list[PublishedSum], following: Batch | None) -> None:
        """Compare the sums of a batch that the ledger lacks, if the `following` batch of the ledger includes it."""
        if not self._is_ahead(ends) or (following is not None and not _is_within(ends, following.end)):
            self.outcome.unordered += len(rows)
            return
        if following is not None and following.follows_gap and not _is_within(ends, following.start or {}):
            self._start(following)
        self._advance(ends)
        self._is_between = True
        for row in rows:
            self._compare(row)

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

    def _compare(self, row: PublishedSum) -> None:
        self.outcome.sums += 1
        self._differ(row.identity, self._found(row), row.ends)

    def _found(self, row: PublishedSum) -> list[Unequal]:
        """Return the fields that differ."""
        self._replay.tags = self._tags(row.version[0])
        return unequal(row.fields, self._replay.sum(row.identity))

    def _all_published(self, newest: Mapping[Identity, PublishedSum], later: set[Identity]) -> None:
        """Compare the newest sum of every metric with the replay. A change that was not published is a difference.

        A metric that no life has needs no sum: a batch whose checkpoint was lost may have read all records of the
        metric and the record that removes it, and the rebuilt table does not know the metric.
        """
        self.outcome.complete = True
        differing = {one.identity for one in self.outcome.differences}
        self._replay.tags = self._tags(self._batches[-1].epoch if self._batches else None)
        for identity in list(self._replay.identities()):
            row = newest.get(identity)
            if row is None and identity in later:
                self.outcome.compacted += 1
            elif identity in differing or (row is not None and not row.within(self._end or {})):
                continue
            elif row is not None:
                self._differ(identity, self._found(row), self._end)
            elif any(True for _ in self._replay.rows(identity)):
                self._differ(identity, [Unequal("sum", None, "published")], self._end)

    def _letter(self, partition: PartitionName, offset: int, refused: list[str]) -> None:
        if self._letters is None or self._end is None or offset >= self._end.get(partition, 0):
            return
        is_published = (partition, offset) in self._letters
        where = f"{partition.replace(':', ', partition ')}, offset {offset}"
        if is_published and refused:
            self.outcome.letters += 1
        elif is_published:
            self._differ(None, [Unequal("dead letter", where, None)], None)
        elif refused and self._is_rebuilt:
            self.outcome.lost_letters += 1
        elif refused:
            self._differ(None, [Unequal("dead letter", None, f"{where}: {refused[0]}")], None)

    def _differ(self, identity: Identity | None, found: Iterable[Unequal], ends: Ends | None) -> None:
        self.outcome.differences += [Difference(identity, *one, ends) for one in found]


def _is_within(ends: Ends, others: Ends) -> bool:
    return all(end <= others.get(partition, 0) for partition, end in ends.items())


class _BatchIndex:
    """Finds the batch of the ledger that published a sum."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        self._numbers: dict[int, list[int]] = {}
        for number, batch in enumerate(batches):
            self._numbers.setdefault(batch.number, []).append(number)

    def batch_of(self, row: PublishedSum) -> int | None:
        """Return the index of the batch, None if the ledger lacks it.

        The ledger may have a batch under the epoch of a later writer, which found it finished.
        """
        epoch, batch_number = row.version
        for number in self._numbers.get(batch_number, ()):
            batch = self._batches[number]
            # The first batch of a rebuilt table publishes every sum. In others a sum includes a record of its batch.
            moved = batch.start is None or not row.within(batch.start) or (batch.begins and epoch == batch.epoch)
            if epoch <= batch.epoch and row.within(batch.end) and moved:
                return number
        return None


def _number_of_records(ends: Iterable[tuple[PartitionName, int]]) -> int:
    return sum(end for _, end in ends)
