"""The ledger as verify reads it: where the table began, and where batches ended."""

from __future__ import annotations

from msgspec.structs import replace

from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.verify.ledger import LedgerBatches, Limit
from tallystream_aggregator.verify.tags import Tags


def opened(epoch: int, *, partial: bool = False, start: int | None = None) -> LedgerRow:
    """Return the row of a writer that took an epoch."""
    begin = {} if start is None else {"metrics": {"0": start}}
    return LedgerRow(kind="opened", query="aggregate", epoch=epoch, ts=epoch, partial=partial, start=begin)


def batch(number: int, end: int, *, query: str = "aggregate") -> LedgerRow:
    """Return the row of a batch that ended at an offset, ten records a batch, at the time of its end."""
    start = {"metrics": {"0": end - 10}} if number else {}
    return LedgerRow(kind="batch", query=query, epoch=1, batch=number, ts=end, start=start, end={"metrics": {"0": end}})


def read(*given: LedgerRow, books: LedgerBatches | None = None) -> LedgerBatches:
    """Return the batches of these rows."""
    books = books or LedgerBatches()
    for row in given:
        books.add(row)
    return books


def test_the_end_is_that_of_the_last_batch_of_the_aggregator() -> None:
    """Batches of other queries are ignored."""
    books = read(opened(1), batch(0, 10), batch(1, 20), batch(2, 99, query="ship"))
    assert (books.end, books.partial) == ({"metrics:0": 20}, None)


def test_a_period_ends_and_begins_at_the_last_batch_that_its_moments_allow() -> None:
    """A limit is a time in the ledger, or the offsets of the records of that time."""
    by_time = read(batch(0, 10), batch(1, 20), batch(2, 30), books=LedgerBatches(to=Limit(25), since=Limit(19)))
    assert (by_time.end, by_time.begin) == ({"metrics:0": 20}, {"metrics:0": 10})
    books = LedgerBatches(to=Limit(0, {"metrics:0": 29}), since=Limit(0, {"metrics:0": 9}))
    by_offset = read(batch(0, 10), batch(1, 20), batch(2, 30), books=books)
    assert (by_offset.end, by_offset.begin) == ({"metrics:0": 20}, None)


def test_a_table_that_began_in_the_middle_is_known_through_restarts() -> None:
    """This holds also if it was killed before its first batch was in the ledger, and restarted many times."""
    killed = read(opened(1, partial=True, start=7), opened(2), batch(0, 10), opened(3), batch(1, 20), opened(4))
    assert killed.partial is not None
    assert killed.partial.start == {"metrics": {"0": 7}}


def test_a_new_table_from_the_beginning_ends_what_was_known_of_an_older_one() -> None:
    """Its own opening says that it begins at the first offsets, or says nothing."""
    before = (opened(1, partial=True, start=7), batch(0, 10))
    assert read(*before, opened(2, start=0), batch(0, 10)).partial is None
    assert read(*before, opened(2), batch(0, 10)).partial is None


def test_a_rebuilt_table_began_where_the_one_before_it_did() -> None:
    """It reads on in the middle and lacks nothing that the lost one had."""
    assert read(opened(1, start=0), batch(0, 10), opened(2, start=10), batch(0, 20)).partial is None
    rebuilt = read(opened(1, partial=True, start=7), batch(0, 10), opened(2, start=10), batch(0, 20)).partial
    assert rebuilt is not None
    assert rebuilt.start == {"metrics": {"0": 7}}


def test_batches_have_the_shards_of_their_table_and_what_they_may_have_left_unread() -> None:
    """A full batch may have left records of the partitions that it read from, and lacks one for each at most."""
    writer = LedgerRow(kind="opened", query="aggregate", epoch=1, ts=0, start={"metrics": {"0": 0}}, shards=3)
    for most, waiting in ((11, set()), (10, {"metrics:0"}), (0, None)):
        one = replace(writer, max_records=most)
        (first, second) = read(one, batch(0, 10), batch(1, 20), batch(1, 20)).batches
        assert (first.shards, first.begins, second.shards, second.begins) == (3, True, 3, False)
        assert [found.waiting for found in (first, second)] == [waiting, waiting], most
        assert (second.start, second.end) == ({"metrics:0": 10}, {"metrics:0": 20})


def test_a_batch_of_before_its_writer_may_have_run_with_the_options_of_the_writer_before() -> None:
    """If the options differ, the ledger does not show which ones the batch had."""
    one = LedgerRow(kind="opened", query="aggregate", epoch=1, ts=0, start={"metrics": {"0": 0}}, max_records=10)
    two = replace(one, epoch=2, ts=15, start={}, max_records=100)
    found = read(one, two, batch(0, 10), batch(1, 20)).batches
    assert [one.waiting for one in found] == [None, frozenset()]


def test_a_rebuilt_table_goes_on_with_the_batches_and_a_new_one_has_its_own() -> None:
    """The first batch of each checkpoint is marked."""
    before = (opened(1, start=0), batch(0, 10))
    assert [one.begins for one in read(*before, opened(2, start=10), batch(0, 20)).batches] == [True, True]
    assert len(read(*before, opened(2, start=0), batch(0, 10)).batches) == 1


def test_each_writer_has_the_tags_of_its_sums() -> None:
    """Retention deletes the oldest rows. A writer without a row has the tags of the one before, or of the first."""
    dropped = replace(opened(3), drop_tags=("pod",))
    kept = replace(opened(5, start=10), keep_tags=("region", "topic"))
    books = read(dropped, batch(0, 10), kept)
    pod, two = Tags(frozenset({"pod"})), Tags(kept=frozenset({"region", "topic"}))
    assert [books.tags_of(epoch) for epoch in (1, 3, 4, 5, 6, None)] == [pod, pod, pod, two, two, two]
    assert [read(batch(0, 10)).tags_of(epoch) for epoch in (1, None)] == [Tags(), Tags()]
