"""The comparison over the batches of the ledger: what depends on the batch that read a record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tallystream_aggregator.verify.check import Check, Outcome
from tallystream_aggregator.verify.decode import RawRecord
from tallystream_aggregator.verify.published import Batch
from tallystream_aggregator.verify.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BEGIN_MS = 1_700_000_000_000
LIFE = "01HF7YAT00" + "A" * 16
ZERO = "metrics:0"


def snapshot(count: int, seq: int) -> bytes:
    """Return a snapshot with one counter."""
    header = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": seq, "ts": 0, "every_ms": 1000, "final": False}
    return json.dumps(header | {"metrics": [{"type": "counter", "name": "n", "count": count}]}).encode()


def forget(shards: int) -> bytes:
    """Return a forget record of the counter."""
    return json.dumps({"v": 1, "forget": {"metric": "n", "shards": shards}}).encode()


def batch(epoch: int, start: int, end: int, *, begins: bool = False, shards: int | None = 1) -> Batch:
    """Return a batch of the ledger."""
    return Batch(epoch, start, {ZERO: start}, {ZERO: end}, begins=begins, shards=shards)


def check(values: Sequence[bytes], batches: Sequence[Batch], letters: set[int]) -> tuple[Outcome, Replay]:
    """Replay the values, which have dead letters at these offsets."""
    records = [RawRecord(offset, BEGIN_MS + offset, b"app-1", value) for offset, value in enumerate(values)]
    read = 0

    def until(partition: str, end: int) -> Iterator[RawRecord]:
        nonlocal read
        begin, read = read, max(end, read)
        assert partition == ZERO
        yield from records[begin:end]

    replay, end = Replay(), batches[-1].end
    found = Check(replay, {ZERO: 0}, end, until, batches=batches, letters={(ZERO, offset) for offset in letters})
    return found.run([], {}, set(), end), replay


def differing(outcome: Outcome) -> list[tuple[str | None, str | None]]:
    """Return the differences of dead letters, as published and replayed."""
    return [(one.published, one.replayed) for one in outcome.differences if one.field == "dead letter"]


def test_a_forget_record_for_another_number_of_shards_than_that_of_its_batch_is_refused() -> None:
    """The number is that of the batch that read the record: a rebuilt table may have more shards.

    What lies before the first batch of the rebuilt table was read by the earlier one. A ledger without the number of
    shards does not tell whether the record was refused.
    """
    values = [
        snapshot(1, 1),
        forget(1),
        snapshot(2, 2),
        forget(2),
        snapshot(4, 3),
        forget(1),
        snapshot(8, 4),
        forget(2),
    ]

    def counted(before: int | None, after: int | None) -> tuple[int, list[int]]:
        """Return the count, and the offsets of the records that were refused."""
        first, second = batch(1, 0, 2, begins=True, shards=before), batch(1, 2, 5, shards=before)
        rebuilt, last = batch(2, 6, 7, begins=True, shards=after), batch(2, 7, 8, shards=after)
        outcome, replay = check(values, [first, second, rebuilt, last], set(range(8)))
        accepted = [int((published or "").rpartition(" ")[2]) for published, _ in differing(outcome)]
        count = replay.sum(("shop", "counter", "n", ()))["count"]
        return count, [offset for offset in range(8) if offset not in accepted]

    assert counted(1, 2) == (0, [3])
    assert counted(1, 1) == (8, [3, 7])
    assert counted(2, 4) == (8, [1, 5, 7])
    assert counted(None, None) == (0, [])


def test_dead_letters_that_were_lost_with_a_checkpoint_are_counted() -> None:
    """A rebuilt table may include records of the lost, unfinished batch, and does not write their dead letters again.

    Such a batch comes after the last one of the lost checkpoint. The first batch of the rebuilt table may read its
    records again. An additional dead letter is a difference there, too.
    """
    batches = [batch(1, 0, 1, begins=True), batch(2, 2, 4, begins=True), batch(2, 4, 5)]
    outcome, _ = check([b"{", b"{", b"{", snapshot(1, 1), b"{"], batches, {3})
    assert differing(outcome) == [
        (None, "metrics, partition 0, offset 0: not JSON in UTF-8"),
        ("metrics, partition 0, offset 3", None),
        (None, "metrics, partition 0, offset 4: not JSON in UTF-8"),
    ]
    assert (outcome.letters, outcome.lost_letters) == (0, 2)
