"""The loop of a shard, one failure at a time: what fails again and again, what is lost, and what is only away."""

from __future__ import annotations

from typing import Any

import pytest

from support.simulation.checkpoints import Batch
from support.simulation.direct import METRICS, ROWS, TOPICS, Direct
from tallystream.errors import TallystreamError
from tallystream_aggregator.stream import compaction, restore
from tallystream_aggregator.stream import loop as loop_module
from tallystream_aggregator.stream.broker import (
    BrokerError,
    FencedError,
    LostRecordsError,
    Output,
    Place,
    UnavailableError,
)
from tallystream_aggregator.stream.epochs import StepFailedError
from tallystream_aggregator.stream.loop import TopicChangedError
from tallystream_aggregator.stream.positions import (
    HangingTransactionError,
    PositionsRow,
    by_place,
    encode,
    key_of,
    newest_row,
)
from tallystream_aggregator.stream.restore import MissingRowsError, ReplayError, Restorer, read_to
from tallystream_aggregator.table.sum_tags import SumTags

OTHER = Place("metrics", 1)


def refuse(direct: Direct, what: str, times: int = 10**9, kind: type[Exception] = BrokerError) -> None:
    """Let requests with this name fail so many times."""
    left = [times]

    def fail(request: str) -> None:
        if what in request and left[0] > 0:
            left[0] -= 1
            raise kind(f"{request} failed")

    direct.fail = fail


def test_a_record_that_cannot_be_published_stops_the_loop() -> None:
    """Its step is halved down to one record, though a claim is published in between, and the error names the place."""
    direct = Direct()
    loop = direct.loop()
    direct.feed(1, 2)
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(*range(3, 50))
    refuse(direct, "write metrics-agg")
    with pytest.raises(StepFailedError, match=r"^a step of one record failed 10 times, after .*: 2\}\}: "):
        loop.run_epoch(direct.store, (1, 1), 600)
    assert direct.published() == {METRICS: 2}
    assert direct.requests.count("write metrics-agg:0 id-0") == 1 + 5 + 10  # of 2, of 47 to 2, and of 1 record


def test_a_claim_that_fails_is_an_outage_and_is_waited_out() -> None:
    """It has no record that could be the reason. Afterwards a step has as many records as before."""
    direct = Direct()
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    direct.feed(*range(100))
    refuse(direct, "write metrics-table", 50)
    report = direct.loop().run_epoch(direct.store, (1, 1), 600)
    assert report.steps < 5
    assert direct.published() == {METRICS: 100}


@pytest.mark.parametrize("topic", ["metrics-agg", "metrics-table"])
def test_a_step_that_times_out_is_tried_again_for_as_long_as_it_takes(topic: str) -> None:
    """It may be an outage of one partition. The first publication of a table may time out, too."""
    direct = Direct()
    direct.feed(1)
    refuse(direct, f"write {topic}", 50, UnavailableError)
    direct.loop().run_epoch(direct.store, (1, 0), 1_000)
    assert direct.published() == {METRICS: 1}


def test_a_partition_that_is_missing_for_a_moment_is_waited_for() -> None:
    """A broker that has just started may not know it. If it stays away, a person must decide."""
    direct = Direct(partitions=2)
    loop = direct.loop()
    direct.feed(1)
    direct.feed(5, place=OTHER, key=b"app-2")
    loop.run_epoch(direct.store, (1, 0), 1)
    partitions = direct.cluster.topics["metrics"].partitions
    away = partitions.pop()
    direct.fail = lambda _: partitions.append(away) if not partitions[1:] and direct.monotonic() > back_s else None
    back_s = direct.monotonic() + 10
    loop.run_epoch(direct.store, (1, 1), 30)
    direct.feed(7, place=OTHER, key=b"app-2")
    loop.run_epoch(direct.store, (1, 2), 1)
    assert direct.published() == {METRICS: 1, OTHER: 2}
    partitions.pop()
    back_s = float("inf")
    with pytest.raises(LostRecordsError, match="it is gone"):
        loop.run_epoch(direct.store, (1, 3), 60)


def test_a_partition_that_is_missing_for_a_moment_after_a_long_outage_is_waited_for() -> None:
    """A broker that is back may know its partitions only seconds later, however long it was away."""
    direct = Direct(partitions=2)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    loop.close()
    direct.feed(5, place=OTHER)
    partitions = direct.cluster.topics["metrics"].partitions
    away, began_s = partitions.pop(), direct.monotonic()

    def fail(_request: str) -> None:
        since_s = direct.monotonic() - began_s
        if since_s < 60:
            raise UnavailableError("no answer")
        if since_s > 75 and not partitions[1:]:
            partitions.append(away)

    direct.fail = fail
    for batch in range(1, 8):
        loop.run_epoch(direct.store, (1, batch), 20)
    assert direct.published() == {METRICS: 0, OTHER: 1}


def test_a_loop_that_ended_in_the_middle_of_a_step_begins_again_at_what_is_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records of the step are in the table, and others of it wait; none of them is lost when the loop goes on."""
    monkeypatch.setattr(compaction, "FEW_RECORDS", 1)
    monkeypatch.setattr(loop_module, "FEW_RECORDS", 1)
    direct = Direct()
    loop = direct.loop(max_records=10)
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(*range(1, 6))
    reads = []

    def fail(request: str) -> None:
        if request == "read":
            reads.append(request)
            if len(reads) == 2:
                raise MemoryError

    direct.fail = fail
    with pytest.raises(MemoryError):
        loop.run_epoch(direct.store, (1, 1), 1)
    direct.feed(6, name="other")
    loop.run_epoch(direct.store, (1, 1), 1)
    assert any(b'"name":"n"' in value and b'"count":5' in value for value in direct.values())


def test_the_begin_of_an_added_partition_is_published_though_it_is_empty() -> None:
    """Otherwise the stored table would be ahead of what is published, and every restart would need the rows."""
    direct = Direct()
    direct.feed(1)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.cluster.create("metrics", 2)
    loop.run_epoch(direct.store, (1, 1), 10)
    assert direct.published() == {METRICS: 1, OTHER: 0}


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


def test_a_transaction_of_a_newer_writer_is_waited_for() -> None:
    """It does not hang: it ends, and its claim ends the older task. Nobody is told to abort it."""
    direct = Direct()
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    cluster, opened = direct.cluster, []

    def fail(request: str) -> None:
        if request == "bounds" and "open id-0" in direct.requests and not opened:
            opened.append(cluster.open_writer("id-0"))
            cluster.add_partitions("id-0", opened[0], [ROWS])
            cluster.produce("id-0", opened[0], ROWS, [(key_of(0), row)])
            began_s.append(direct.monotonic())
        elif opened and direct.monotonic() > began_s[0] + 5 and cluster.open_transactions():
            cluster.end("id-0", opened[0], "commit")

    began_s: list[float] = []
    row = encode(PositionsRow(shard=0, claim=(2, 0), step=2, positions={"metrics": {"0": 0}}, topics={}))
    direct.requests.clear()
    direct.fail = fail
    with pytest.raises(FencedError, match="a newer task has it"):
        direct.loop().run_epoch(direct.store, (1, 1), 600)


def test_a_transaction_that_nobody_ends_stops_the_loop() -> None:
    """Kafka's tool must end it. A stop is noticed meanwhile."""
    direct = Direct()
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    epoch = direct.cluster.open_writer("other")
    direct.cluster.add_partitions("other", epoch or 0, [ROWS])
    direct.cluster.produce("other", epoch or 0, ROWS, [(b"key", b"value")])
    with pytest.raises(HangingTransactionError, match="find-hanging"):
        direct.loop().run_epoch(direct.store, (1, 1), 600)
    direct.stopped = True
    direct.loop().run_epoch(direct.store, (1, 2), 600)


def test_a_topic_that_is_missing_for_a_moment_is_waited_for() -> None:
    """The partition of the rows may be unknown to a broker that has just started."""
    direct = Direct()
    direct.feed(1)
    away = direct.cluster.topics.pop("metrics-table")
    end_s = direct.monotonic() + 5
    direct.fail = lambda _: (
        direct.cluster.topics.setdefault("metrics-table", away) if direct.monotonic() > end_s else None
    )
    direct.loop().run_epoch(direct.store, (1, 0), 60)
    assert direct.published() == {METRICS: 1}


def killed_behind_its_rows(direct: Direct) -> None:
    """Publish four records, of which the rows have the first one, and kill the loop."""
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(1)

    def fail(request: str) -> None:
        if request == "read" and direct.published() == {METRICS: 4}:
            raise MemoryError
        if request == "read" and direct.published() == {METRICS: 1} and direct.cluster.partition(METRICS).end == 1:
            direct.feed(2, 3, 4)

    direct.fail = fail
    with pytest.raises(MemoryError):
        loop.run_epoch(direct.store, (1, 1), 1)
    direct.fail = lambda _: None


@pytest.mark.parametrize("first", [2, 4, 5])
def test_a_table_that_is_made_of_its_rows_skips_lost_records_if_it_may(first: int) -> None:
    """Records that are published, and that the rows lack, were deleted: the message says how to continue."""
    direct = Direct()
    killed_behind_its_rows(direct)
    direct.feed(5, 6)
    direct.cluster.partition(METRICS).delete_before(first)
    with pytest.raises(LostRecordsError, match="--on-data-loss continue"):
        direct.loop().run_epoch(Batch(0), (2, 0), 10)
    direct.loop(skip_lost=True).run_epoch(Batch(0), (3, 0), 10)
    assert direct.published() == {METRICS: 6}
    assert b'"count":6' in direct.values()[-1]


def test_lost_records_are_skipped_though_nothing_comes_after_them() -> None:
    """The topic was emptied while the aggregator was away."""
    direct = Direct()
    killed_behind_its_rows(direct)
    direct.feed(5, 6)
    direct.cluster.partition(METRICS).delete_before(6)
    direct.loop(skip_lost=True).run_epoch(Batch(0), (2, 0), 10)
    assert direct.published() == {METRICS: 6}


def test_lost_records_of_an_old_state_are_not_skipped_if_the_rows_have_them() -> None:
    """An old copy of the checkpoint is older than the records. The rows are used, and no count falls."""
    direct = Direct()
    direct.feed(1)
    loop = direct.loop(skip_lost=True)
    loop.run_epoch(direct.store, (1, 0), 1)
    old = direct.store.copy(1)
    direct.feed(5, name="other")
    direct.feed(2)
    loop.run_epoch(direct.store, (1, 1), 1)
    direct.cluster.partition(METRICS).delete_before(3)
    direct.feed(6, name="other", key=b"app-2")
    direct.loop(skip_lost=True).run_epoch(old, (2, 0), 1)
    assert b'"count":11' in direct.values()[-1]


def test_records_of_an_added_partition_that_were_deleted_are_lost() -> None:
    """The table does not know the partition. Its records were published from the first one on."""
    direct = Direct()
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    old = direct.store.copy(1)
    direct.cluster.create("metrics", 2)
    direct.feed(1, 2, place=OTHER)
    direct.loop().run_epoch(direct.store, (1, 1), 1)
    direct.cluster.partition(OTHER).delete_before(1)
    direct.cluster.partition(ROWS).compact(100, markers=True, tombstones=True)
    direct.loop().run_epoch(old, (2, 0), 1)
    assert direct.published() == {METRICS: 0, OTHER: 2}


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


class Unchecked(Restorer):
    """Takes every table, without asking what is published and what it has counted."""

    def _replay(self, table: Any, published: Any, source: Any, *, skip_lost: bool = False) -> None:
        read_to(table, by_place(published.positions), source, self._stopped, skip_lost=skip_lost)
        table.outputs()


@pytest.mark.parametrize("checked", [True, False])
def test_a_state_above_what_is_published_does_not_count(monkeypatch: pytest.MonkeyPatch, checked: bool) -> None:
    """After a loss of unflushed records, the dead letters that were lost with them are published again.

    A loop that continued the state would leave them out.
    """
    if not checked:
        monkeypatch.setattr(loop_module, "Restorer", Unchecked)
    direct = Direct()
    direct.feed(1)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.flush()
    outputs = direct.cluster.places("metrics-agg", "metrics-dead", "metrics-table")
    flushed = {place: direct.cluster.partition(place).end for place in outputs}
    direct.cluster.append(METRICS, b"app-1", b"{")
    direct.feed(2)
    loop.run_epoch(direct.store, (1, 1), 1)
    assert len(direct.values("metrics-dead")) == 1
    for place, end in flushed.items():
        direct.cluster.partition(place).truncate(end)
    direct.feed(3)
    direct.loop().run_epoch(direct.store, (2, 0), 1)
    assert direct.published() == {METRICS: 4}
    assert len(direct.values("metrics-dead")) == checked


def test_rows_are_read_in_a_number_of_requests_that_does_not_depend_on_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compacted topic has many more offsets than rows, and each range of offsets needs a consumer of its own."""
    monkeypatch.setattr(restore, "READ_AT_ONCE", 5)
    direct = Direct()
    loop = direct.loop()
    for value in range(100):
        direct.feed(value)
        loop.run_epoch(direct.store, (1, value), 1)
    partition = direct.cluster.partition(ROWS)
    partition.compact(partition.end, markers=True, tombstones=True)
    direct.requests.clear()
    direct.feed(100)
    direct.loop().run_epoch(Batch(0), (2, 0), 0.2)
    assert direct.published() == {METRICS: 101}
    assert len(direct.requests) < 40


def test_a_broker_that_was_slow_once_delays_the_next_step_by_seconds() -> None:
    """Publishing takes a fifth of the time, but one slow commit is no reason to read nothing for most of a minute."""
    direct = Direct()
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    slow = ["commit"]

    def fail(request: str) -> None:
        if slow and request.startswith("write metrics-agg"):
            slow.clear()
            direct.pass_time(9)
            direct.feed(2)

    direct.fail = fail
    direct.feed(1)
    direct.loop().run_epoch(direct.store, (1, 1), 20)
    assert direct.published() == {METRICS: 2}


def test_each_step_names_the_task_that_published_it() -> None:
    """A loop goes on from epoch to epoch. A task of an earlier attempt that wakes up finds a higher claim, and ends."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(1)
    loop.run_epoch(direct.store, (1, 5), 1)
    direct.requests.clear()
    with pytest.raises(FencedError, match="a newer task has it"):
        direct.loop().run_epoch(direct.store, (1, 4), 1)
    assert not any("open" in request for request in direct.requests)


def test_a_task_that_looked_before_the_first_sums_leaves_them_to_the_newer_task() -> None:
    """Two drivers begin a new table. The sums of the newer one are not those of a table that was lost."""
    direct = Direct()
    direct.feed(1)

    def fail(request: str) -> None:
        if request == "bounds" and direct.requests[-4:-1] == ["open id-0", "bounds", "bounds"]:
            direct.fail = lambda _: None
            direct.loop().run_epoch(Batch(0), (2, 0), 1)

    direct.fail = fail
    with pytest.raises(FencedError, match="a newer task has it"):
        direct.loop().run_epoch(direct.store, (1, 0), 60)


def test_sums_without_positions_stop_the_loop() -> None:
    """The topic of the positions was lost. A new table would publish lower counts."""
    direct = Direct()
    direct.cluster.append(Place("metrics-agg", 0), b"key", b"{}")
    with pytest.raises(TallystreamError, match="it has sums, and metrics-table has no positions"):
        direct.loop().run_epoch(direct.store, (1, 0), 60)


def test_a_table_in_memory_that_is_not_the_stored_one_is_made_again() -> None:
    """Spark runs a batch again, in the same process, after an epoch that it did not commit."""
    direct = Direct()
    loop = direct.loop()
    assert loop.run_epoch(direct.store, (1, 0), 1).restarts == 1
    before = direct.store.copy(1)
    direct.feed(1)
    assert loop.run_epoch(direct.store, (1, 1), 1).restarts == 0
    assert loop.run_epoch(before, (1, 1), 1).restarts == 1
    assert loop.run_epoch(before, (1, 2), 1).restarts == 0


@pytest.mark.parametrize("restart", [False, True])
def test_a_topic_that_was_created_again_stops_the_loop(restart: bool) -> None:
    """The positions mean nothing in the new one."""
    direct = Direct()
    direct.feed(1, 2)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.cluster.delete("metrics")
    direct.cluster.create("metrics", 1)
    direct.feed(*([1] if restart else [1, 2, 3]))
    with pytest.raises(TopicChangedError, match="begin a new table"):
        (direct.loop() if restart else loop).run_epoch(direct.store, (1, 1), 0.1 if restart else 10)


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


def test_a_table_is_not_made_of_a_part_of_its_rows() -> None:
    """Rows of lives that do not change were deleted, as by a retention. Counts would fall."""
    direct = Direct()
    loop = direct.loop()
    direct.feed(1)
    loop.run_epoch(direct.store, (1, 0), 1)
    before = direct.cluster.partition(ROWS).end
    direct.feed(5, key=b"app-2")
    loop.run_epoch(direct.store, (1, 1), 2)
    direct.flush()
    direct.cluster.partition(ROWS).delete_before(before)
    direct.feed(6, key=b"app-2")
    with pytest.raises(MissingRowsError, match=r"metrics-table, partition 0: the records before .* begin a new table"):
        direct.loop().run_epoch(Batch(0), (2, 0), 3)
    direct.loop().run_epoch(direct.store, (3, 0), 3)
    assert b'"count":7' in direct.values()[-1]


def test_a_table_does_not_begin_on_a_topic_whose_rows_were_deleted() -> None:
    """Later nobody could tell whether its own rows were deleted, too. The topic must be deleted as a whole."""
    direct = Direct()
    direct.cluster.append(ROWS, b"key", b"row")
    direct.cluster.partition(ROWS).delete_before(1)
    with pytest.raises(MissingRowsError, match="delete the topics metrics-table"):
        direct.loop().run_epoch(direct.store, (1, 0), 3)


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


def test_a_step_that_failed_is_halved_and_doubled_again() -> None:
    """Each step that is published doubles the number of records of the next one."""
    direct = Direct()
    loop = direct.loop(max_records=64)
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(*range(40))
    refuse(direct, "write metrics-agg", 3)
    ends, noted = [], direct.fail

    def fail(request: str) -> None:
        noted(request)
        if request == "read":
            ends.append((direct.published() or {})[METRICS])

    direct.fail = fail
    loop.run_epoch(direct.store, (1, 1), 20)
    assert sorted(set(ends)) == [0, 5, 15, 35, 40]


def test_an_outage_is_tried_again_after_longer_and_longer_waits_which_begin_anew_after_a_success() -> None:
    """Two outages of a minute have the same number of attempts, and epochs do not matter."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    attempts = []
    for batch in range(1, 120):
        if batch in (1, 60):
            direct.feed(batch)
            until_s, tried = direct.monotonic() + 58, list[str]()
            attempts.append(tried)

            def fail(request: str, until_s: float = until_s, tried: list[str] = tried) -> None:
                if direct.monotonic() < until_s and request in ("write metrics-agg:0 id-0", "open id-0"):
                    tried.append(request)
                    raise UnavailableError("no answer")

            direct.fail = fail
        loop.run_epoch(direct.store, (1, batch), 1)
    first, second = map(len, attempts)
    assert first == second
    assert first < 70


def test_a_state_of_other_tags_is_not_used() -> None:
    """A checkpoint may be left from before a rebuild, with the same positions and counts of records."""
    before, direct = Direct(), Direct()
    for one, tags in ((before, SumTags(drop=("k",))), (direct, SumTags())):
        one.feed(1)
        one.loop(sum_tags=tags).run_epoch(one.store, (1, 0), 1)
    direct.feed(2)
    loop = direct.loop()
    loop.run_epoch(before.store, (2, 0), 1)
    assert loop._table.state.sum_tags == SumTags()
    assert direct.published() == {METRICS: 2}


def test_a_rate_limits_what_is_read() -> None:
    """A step has at most the records of a second, and the next one waits until they are due. Nothing is left out."""
    direct = Direct()
    direct.feed(*range(50))
    loop = direct.loop(max_rate=10)
    assert loop.run_epoch(direct.store, (1, 0), 2.5).records == 30
    assert loop.run_epoch(direct.store, (1, 0), 10).records == 20
    assert direct.published() == {METRICS: 50}


def test_a_state_of_an_earlier_table_is_not_used() -> None:
    """The topics were deleted and created again, and the checkpoint stayed. It has as many records at its positions."""
    direct = Direct()
    direct.feed(5)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    for topic in (TOPICS.metrics, TOPICS.agg, TOPICS.table):
        direct.cluster.delete(topic)
        direct.cluster.create(topic, 1)
    direct.feed(1)
    direct.loop().run_epoch(Batch(0), (2, 0), 1)
    direct.feed(2)
    direct.loop().run_epoch(direct.store, (3, 0), 1)
    assert b'"count":2' in direct.values()[-1]
    assert not direct.values(TOPICS.dead)


def test_a_state_that_is_ahead_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """Rows and positions of `metrics-table` were lost in an unclean election. The rows that are left are used."""
    ahead, direct = Direct(), Direct()
    for one, values in ((ahead, (1, 2, 3)), (direct, (1,))):
        one.feed(*values)
        one.loop().run_epoch(one.store, (1, 0), 1)
    direct.feed(5, 6)
    direct.loop().run_epoch(ahead.store, (2, 0), 1)
    assert direct.published() == {METRICS: 3}
    assert b'"count":6' in direct.values()[-1]
    assert "ahead of the published positions" in caplog.text


def test_rows_that_do_not_lead_to_what_is_published_stop_the_loop() -> None:
    """Somebody has changed records or rows. A table that counts something else must not go on."""
    direct = Direct()
    direct.feed(1, 2)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    row = PositionsRow(
        shard=0, claim=(1, 1), step=9, positions={"metrics": {"0": 2}}, topics={"metrics": "id-5"}, records=3
    )
    direct.broker.writer("id-0").commit([Output(ROWS, key_of(0), encode(row))])
    with pytest.raises(ReplayError, match=r"counts \(2, 0, 0\) .* has \(3, 0, 0\).* begin a new table"):
        direct.loop().run_epoch(direct.store, (2, 0), 10)


def test_what_the_rows_lack_is_written_before_the_state() -> None:
    """Otherwise a checkpoint that is lost later would leave the rows behind for ever."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(1)
    loop.run_epoch(direct.store, (1, 1), 0.5)
    direct.feed(2)
    loop.run_epoch(direct.store, (1, 2), 0.2)
    direct.cluster.partition(METRICS).delete_before(2)
    direct.feed(3)
    direct.loop().run_epoch(Batch(0), (2, 0), 1)
    assert b'"count":3' in direct.values()[-1]


def test_a_new_table_begins_at_the_given_positions_and_keeps_them() -> None:
    """The option `--from`. A kill before the first record, or another option later, changes nothing."""
    direct = Direct()
    direct.feed(1, name="early")
    direct.loop(begin={METRICS: 1}).run_epoch(direct.store, (1, 0), 1)
    assert direct.published() == {METRICS: 1}
    direct.feed(2)
    for store in (Batch(0), direct.store):
        direct.loop(begin={METRICS: 0}).run_epoch(store, (2, 0), 1)
    assert direct.published() == {METRICS: 2}
    assert all(b'"name":"n"' in value for value in direct.values())


@pytest.mark.parametrize("aborted", [0, 60, 61, 62, 63, 188, 189, 190, 191, 1_000])
def test_the_newest_positions_are_found_behind_any_number_of_aborted_records(aborted: int) -> None:
    """A writer may have failed for a long time. The records are searched backwards in growing ranges without a gap."""
    direct = Direct()
    direct.feed(1)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    direct.flush()
    newest = newest_row(direct.broker, ROWS, 0)
    epoch = direct.cluster.open_writer("id-0") or 0
    direct.cluster.add_partitions("id-0", epoch, [ROWS])
    direct.cluster.produce("id-0", epoch, ROWS, [(b"key", b"value")] * aborted)
    direct.cluster.end("id-0", epoch, "abort")
    direct.flush()
    assert newest_row(direct.broker, ROWS, 0) == newest


def test_a_task_that_is_replaced_while_it_restores_ends_as_such() -> None:
    """The rows that it reads are newer than the positions with which it began. Nobody has changed them wrongly."""
    direct = Direct()
    direct.feed(1)
    direct.loop().run_epoch(direct.store, (1, 0), 1)

    def fail(request: str) -> None:
        if request == "read":
            direct.fail = lambda _: None
            direct.feed(2)
            direct.loop().run_epoch(direct.store, (3, 0), 1)
            direct.flush()

    direct.fail = fail
    with pytest.raises(FencedError, match="a newer task has it"):
        direct.loop().run_epoch(Batch(0), (2, 0), 60)
    assert direct.published() == {METRICS: 2}
