"""The topics of a loop: partitions are added, records are lost, a topic is created again."""

from __future__ import annotations

import pytest

from support.simulation.direct import METRICS, TOPICS, Direct
from tallystream_aggregator.stream.broker import LostRecordsError, Place
from tallystream_aggregator.stream.loop import TopicChangedError

OTHER = Place("metrics", 1)


def test_the_begin_of_an_added_partition_is_published_though_it_is_empty() -> None:
    """Otherwise the stored table would be ahead of what is published, and every restart would need the rows."""
    direct = Direct()
    direct.feed(1)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.cluster.create("metrics", 2)
    loop.run_epoch(direct.store, (1, 1), 10)
    assert direct.published() == {METRICS: 1, OTHER: 0}


def test_an_added_partition_whose_first_records_were_deleted_is_lost_or_skipped() -> None:
    """A pattern may find a topic that is older than its retention."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.cluster.create("metrics", 2)
    direct.feed(1, 2, 3, place=OTHER)
    direct.cluster.partition(OTHER).delete_before(2)
    with pytest.raises(LostRecordsError, match="has offsets 2 to 3, and 0 is the next"):
        loop.run_epoch(direct.store, (1, 1), 10)
    direct.loop(skip_lost=True).run_epoch(direct.store, (1, 2), 10)
    assert direct.published() == {METRICS: 0, OTHER: 3}


def test_skipped_records_are_published_as_read() -> None:
    """The lag of the group ends, and the stored table is not ahead of what is published."""
    direct = Direct()
    direct.feed(1)
    loop = direct.loop(skip_lost=True)
    loop.run_epoch(direct.store, (1, 0), 1)
    loop.close()
    direct.feed(2, 3)
    direct.cluster.partition(METRICS).delete_before(3)
    loop.run_epoch(direct.store, (1, 1), 1)
    assert direct.published() == {METRICS: 3}


@pytest.mark.parametrize("skip_lost", [False, True])
def test_a_log_that_was_cut_off_stops_the_loop(skip_lost: bool) -> None:
    """Later records have offsets that were read before. So they can't be skipped, and the message does not say so."""
    direct = Direct()
    direct.feed(1, 2, 3)
    loop = direct.loop(skip_lost=skip_lost)
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.cluster.partition(METRICS).truncate(2)
    for one in (loop, direct.loop(skip_lost=skip_lost)):
        with pytest.raises(LostRecordsError) as raised:
            one.run_epoch(direct.store, (1, 1), 1)
        assert "--on-data-loss" not in str(raised.value)
    assert direct.published() == {METRICS: 3}


@pytest.mark.parametrize(("restart", "written"), [(False, 1), (False, 5), (True, 1), (True, 2), (True, 5)])
def test_a_log_that_was_cut_off_and_written_again_stops_the_loop(restart: bool, written: int) -> None:
    """Other records have offsets that were read, in part or all. The message names them.

    If there are just as many, a loop that runs notices it with the next record.
    """
    direct = Direct()
    direct.feed(1, 2, 3)
    loop = direct.loop(skip_lost=True)
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.cluster.partition(METRICS).truncate(1)
    direct.feed(*range(written))
    with pytest.raises(LostRecordsError, match="partition 0: it lost the offsets 1 to 2, as by an unclean") as raised:
        (direct.loop(skip_lost=True) if restart else loop).run_epoch(direct.store, (1, 1), 1)
    assert "begin a new table" in str(raised.value)
    assert direct.published() == {METRICS: 3}
    assert b'"count":3' in direct.values()[-1]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("deleted", [0, 3])
def test_a_new_leader_that_has_all_records_changes_nothing(restart: bool, deleted: int) -> None:
    """Nor does it if the last record that was read is deleted, so that nothing can be compared."""
    direct = Direct()
    direct.feed(1, 2, 3)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.cluster.partition(METRICS).epoch += 1
    direct.feed(4)
    direct.cluster.partition(METRICS).delete_before(deleted)
    (direct.loop() if restart else loop).run_epoch(direct.store, (1, 1), 1)
    direct.feed(5)
    loop.run_epoch(direct.store, (1, 2), 1)
    assert b'"count":5' in direct.values()[-1]


def test_every_new_leader_among_the_records_that_are_read_at_once_is_checked() -> None:
    """The first one of two may have lost records."""
    direct = Direct()
    direct.feed(1, 2)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    partition = direct.cluster.partition(METRICS)
    partition.truncate(1)
    direct.feed(3, 4)
    partition.epoch += 1
    direct.feed(5)
    with pytest.raises(LostRecordsError, match="lost the offsets 1 to 1"):
        loop.run_epoch(direct.store, (1, 1), 1)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("records", [0, 1, 3])
def test_a_topic_that_was_created_again_stops_the_loop(restart: bool, records: int) -> None:
    """The positions mean nothing in the new one. With fewer records, it is not taken for a truncated one."""
    direct = Direct()
    direct.feed(1, 2)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.cluster.delete("metrics")
    direct.cluster.create("metrics", 1)
    direct.feed(*range(records))
    with pytest.raises(TopicChangedError, match="begin a new table"):
        (direct.loop() if restart else loop).run_epoch(direct.store, (1, 1), 10)


@pytest.mark.parametrize("restart", [False, True])
def test_sums_whose_topic_was_created_again_stop_the_loop(restart: bool) -> None:
    """Those that do not change would be missing there for ever, and nobody would know."""
    direct = Direct()
    direct.feed(1)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.cluster.delete(TOPICS.agg)
    direct.cluster.create(TOPICS.agg, 1)
    direct.feed(2, name="other")
    with pytest.raises(TopicChangedError, match=r"metrics-agg: it was deleted .* run tallystream rebuild"):
        (direct.loop() if restart else loop).run_epoch(direct.store, (1, 1), 10)
