"""What verify reads from the ledger: the offsets at which the table began, and the ends of batches."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.verify.job import otlp_topics_of
from tallystream_aggregator.verify.ledger import LedgerBatches, Limit
from tallystream_aggregator.verify.tags import Tags


def opened(epoch: int, *, partial: bool = False, start: int | None = None) -> LedgerRow:
    """Return the row of a writer with its epoch."""
    begin = {} if start is None else {"metrics": {"0": start}}
    return LedgerRow(kind="opened", query="aggregate", epoch=epoch, ts=epoch, partial=partial, start=begin)


def batch(number: int, end: int, *, epoch: int = 1, query: str = "aggregate") -> LedgerRow:
    """Return the row of a batch with ten records that ended at an offset. Its time is that of its end."""
    start = {"metrics": {"0": end - 10}} if number else {}
    return LedgerRow(
        kind="batch", query=query, epoch=epoch, batch=number, ts=end, start=start, end={"metrics": {"0": end}}
    )


def read(*given: LedgerRow, ledger: LedgerBatches | None = None) -> LedgerBatches:
    """Return the batches of these rows."""
    ledger = ledger or LedgerBatches()
    for row in given:
        ledger.add(row)
    return ledger


def test_the_end_is_that_of_the_last_batch_of_the_aggregator() -> None:
    """Batches of other queries are ignored."""
    ledger = read(opened(1), batch(0, 10), batch(1, 20), batch(2, 99, query="ship"))
    assert (ledger.end, ledger.partial) == ({"metrics:0": 20}, None)


def test_the_ends_of_a_period_are_the_last_batches_before_its_limits() -> None:
    """A limit is a time in the ledger, or the offsets of the records of that time."""
    by_time = read(batch(0, 10), batch(1, 20), batch(2, 30), ledger=LedgerBatches(to=Limit(25), since=Limit(19)))
    assert (by_time.end, by_time.begin) == ({"metrics:0": 20}, {"metrics:0": 10})
    ledger = LedgerBatches(to=Limit(0, {"metrics:0": 29}), since=Limit(0, {"metrics:0": 9}))
    by_offset = read(batch(0, 10), batch(1, 20), batch(2, 30), ledger=ledger)
    assert (by_offset.end, by_offset.begin) == ({"metrics:0": 20}, None)


def test_the_start_of_a_table_in_the_middle_is_known_after_restarts() -> None:
    """This holds also if it was killed before its first batch was in the ledger, and restarted many times."""
    killed = read(opened(1, partial=True, start=7), opened(2), batch(0, 10), opened(3), batch(1, 20), opened(4))
    assert killed.partial is not None
    assert killed.partial.start == {"metrics": {"0": 7}}


def test_a_new_table_from_the_beginning_replaces_the_start_of_an_older_one() -> None:
    """The row of its writer has the first offsets."""
    before = (opened(1, partial=True, start=7), batch(0, 10))
    assert read(*before, opened(2, start=0), batch(0, 10, epoch=2)).partial is None


def test_a_first_batch_that_is_written_again_begins_no_table() -> None:
    """The broker may not have acknowledged its row, or a later writer found it finished."""
    before = (opened(1, partial=True, start=7), batch(0, 10), batch(1, 20))
    for again in ((batch(0, 10),), (opened(2), batch(0, 10))):
        found = read(*before, *again)
        assert (found.partial, len(found.batches)) == (before[0], 2)


def test_a_batch_after_a_gap_of_the_ledger_begins_no_table() -> None:
    """Its row has no start if the ledger could not be written for so long that Spark deleted the offsets before it.

    The batches from the last row on are then not known one by one.
    """
    partial = opened(1, partial=True, start=7)
    first, later = batch(0, 10), replace(batch(150, 900), start={})
    found = read(partial, first, later, batch(151, 910))
    assert found.partial == partial
    assert [(one.number, one.begins, one.follows_gap) for one in found.batches] == [
        (0, True, False),
        (150, False, True),
        (151, False, False),
    ]
    assert found.batches[1].start == {"metrics:0": 10}


def test_the_first_row_of_a_table_may_follow_a_gap() -> None:
    """The row "opened" has the start of a new or rebuilt table also if no row of its first batches was written."""
    later = replace(batch(150, 900, epoch=2), start={})
    for before, start in (((), 7), ((opened(1, start=0), batch(0, 10)), 10)):
        found = read(*before, opened(2, partial=not before, start=start), later).batches[-1]
        assert (found.start, found.begins, found.follows_gap) == ({"metrics:0": start}, True, True)


def test_a_late_row_of_a_replaced_writer_does_not_hide_where_a_rebuilt_table_began() -> None:
    """Late rows come after the row "opened" of the rebuilt table, and before that of its first batch."""
    late = batch(0, 10), batch(1, 20)
    found = read(opened(1, start=0), batch(0, 10), opened(2, start=20), *late, batch(0, 30, epoch=2)).batches
    assert [(one.begins, one.start) for one in found[1:]] == [
        (False, {"metrics:0": 10}),
        (True, {"metrics:0": 20}),
    ]


def test_a_rebuilt_table_began_where_the_one_before_it_did() -> None:
    """It continues in the middle, and has everything that the lost table had."""
    assert read(opened(1, start=0), batch(0, 10), opened(2, start=10), batch(0, 20, epoch=2)).partial is None
    rebuilt = read(opened(1, partial=True, start=7), batch(0, 10), opened(2, start=10), batch(0, 20, epoch=2)).partial
    assert rebuilt is not None
    assert rebuilt.start == {"metrics": {"0": 7}}


def test_batches_have_the_shards_of_their_table_and_the_settings_of_their_writer() -> None:
    """A row that is written twice counts once."""
    writer = LedgerRow(kind="opened", query="aggregate", epoch=1, ts=0, start={"metrics": {"0": 0}}, shards=3)
    writer.forget_after_ms = 7
    (first, second) = read(writer, batch(0, 10), batch(1, 20), batch(1, 20)).batches
    assert (first.shards, first.begins, second.shards, second.begins) == (3, True, 3, False)
    assert (second.start, second.end) == ({"metrics:0": 10}, {"metrics:0": 20})
    assert (first.forget_after_ms, second.forget_after_ms) == (7, 7)


def test_a_rebuilt_table_continues_the_batches_and_a_new_table_does_not() -> None:
    """The first batch of each checkpoint is marked."""
    before = (opened(1, start=0), batch(0, 10))
    assert [one.begins for one in read(*before, opened(2, start=10), batch(0, 20, epoch=2)).batches] == [True, True]
    assert len(read(*before, opened(2, start=0), batch(0, 10, epoch=2)).batches) == 1


def test_the_topics_of_otlp_metrics_come_from_the_ledger() -> None:
    """An option may repeat them, and is needed only for a ledger without batches. Any other topic is refused."""
    last = [replace(batch(0, 10), otlp=["a", "b"])]
    assert otlp_topics_of((), last) == otlp_topics_of(("b",), last) == ("a", "b")
    assert otlp_topics_of(("a",), [opened(1)]) == ("a",)
    assert otlp_topics_of((), [batch(0, 10)]) == ()
    with pytest.raises(ConfigError, match="reads OTLP metrics from a, b: leave the option out"):
        otlp_topics_of(("c",), last)
    with pytest.raises(ConfigError, match="reads no OTLP metrics: leave the option out"):
        otlp_topics_of(("c",), [batch(0, 10)])


def test_each_writer_has_the_tags_of_its_sums() -> None:
    """Retention deletes the oldest rows. A writer without a row has the tags of the one before, or of the first."""
    dropped = replace(opened(3), drop_tags=("pod",))
    kept = replace(opened(5, start=10), keep_tags=("region", "topic"))
    ledger = read(dropped, batch(0, 10), kept)
    pod, two = Tags(frozenset({"pod"})), Tags(kept=frozenset({"region", "topic"}))
    assert [ledger.tags_of(epoch) for epoch in (1, 3, 4, 5, 6, None)] == [pod, pod, pod, two, two, two]
    assert [read(batch(0, 10)).tags_of(epoch) for epoch in (1, None)] == [Tags(), Tags()]
