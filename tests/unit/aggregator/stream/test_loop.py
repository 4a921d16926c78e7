"""The loop of a shard: how it begins, and the end of an epoch."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import pytest

from support.simulation.checkpoints import Batch
from support.simulation.direct import METRICS, ROWS, TOPICS, Direct
from tallystream.errors import TallystreamError
from tallystream_aggregator.stream import loop as loop_module
from tallystream_aggregator.stream.broker import Bounds, BrokerError, FencedError, Place, UnavailableError
from tallystream_aggregator.stream.epochs import EpochRow
from tallystream_aggregator.stream.positions import key_of, newest_row
from tallystream_aggregator.stream.restore import MissingRowsError
from tallystream_aggregator.table import storage


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


def test_a_table_begins_when_there_is_a_partition() -> None:
    """The topic may be created later. Its first records count, too."""
    direct = Direct()
    direct.cluster.delete(TOPICS.metrics)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    assert direct.published() is None
    direct.cluster.create(TOPICS.metrics, 1)
    direct.feed(1)
    direct.loop().run_epoch(direct.store, (1, 1), 20)
    assert direct.published() == {METRICS: 1}


def test_sums_without_positions_stop_the_loop() -> None:
    """The topic of the positions was lost. A new table would publish lower counts."""
    direct = Direct()
    direct.cluster.append(Place("metrics-agg", 0), b"key", b"{}")
    with pytest.raises(TallystreamError, match="it has sums, and metrics-table has no positions"):
        direct.loop().run_epoch(direct.store, (1, 0), 60)


def test_a_table_does_not_begin_on_a_topic_whose_rows_were_deleted() -> None:
    """Later nobody could tell whether its own rows were deleted, too. The topic must be deleted as a whole."""
    direct = Direct()
    direct.cluster.append(ROWS, b"key", b"row")
    direct.cluster.partition(ROWS).delete_before(1)
    with pytest.raises(MissingRowsError, match="delete the topics metrics-table"):
        direct.loop().run_epoch(direct.store, (1, 0), 3)


def test_a_task_that_looked_before_the_first_sums_leaves_them_to_the_newer_task() -> None:
    """Two drivers begin a new table. The sums of the newer one are not those of a table that was lost."""
    direct = Direct()
    direct.feed(1)

    def fail(request: str) -> None:
        opened = ["open tallystream-aggregator-0", *["bounds"] * 5]
        if request == "bounds" and direct.requests[-7:-1] == opened:
            direct.fail = lambda _: None
            direct.loop().run_epoch(Batch(0), (2, 0), 1)

    direct.fail = fail
    with pytest.raises(FencedError, match="a newer task has it"):
        direct.loop().run_epoch(direct.store, (1, 0), 60)


def test_a_task_that_looked_before_a_newer_one_began_ends() -> None:
    """It has fenced the newer task by then, and publishes nothing: that one begins again."""
    direct = Direct()
    direct.feed(1)
    direct.loop().run_epoch(Batch(0), (1, 0), 1)

    def fail(request: str) -> None:
        if request.startswith("open"):
            direct.fail = lambda _: None
            direct.loop().run_epoch(Batch(0), (3, 0), 1)

    direct.fail = fail
    with pytest.raises(FencedError, match="a newer task has it"):
        direct.loop().run_epoch(direct.store, (2, 0), 60)


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


def test_the_report_of_an_epoch_has_what_it_did() -> None:
    """Since the end of the epoch before: the first one publishes the begin, two records, and a second later rows."""
    direct, written = Direct(), []
    loop = direct.loop()
    direct.feed(3, 5)
    direct.fail = lambda request: written.append(direct.monotonic()) if f"write {ROWS}" in request else None
    begin_s = direct.monotonic()
    of_all: dict[str, Any] = {"seconds": 10.0, "waited_s": 10.0, "positions": {"metrics": {"0": 2}}}
    report = loop.run_epoch(direct.store, (1, 0), 10)
    assert report == EpochRow(
        0, steps=3, records=2, sums=2, rows=3, restarts=1, state_bytes=report.state_bytes, **of_all
    )
    assert report.state_bytes > 0
    assert [round(at - begin_s) for at in written] == [0, 0, 1]
    report = loop.run_epoch(direct.store, (1, 1), 10)
    assert report == EpochRow(0, state_bytes=report.state_bytes, **of_all)
    direct.stopped = True
    assert loop.run_epoch(direct.store, (1, 2), 10).stopped


def test_a_step_with_a_backlog_does_not_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks for more records, and publishes at once if there are none."""
    monkeypatch.setattr(loop_module, "FEW_RECORDS", 1)
    direct, written = Direct(), set[float]()
    direct.feed(3)
    direct.fail = lambda request: written.add(direct.monotonic()) if "write metrics-agg" in request else None
    begin_s = direct.monotonic()
    direct.loop().run_epoch(direct.store, (1, 0), 10)
    assert written == {begin_s}


@pytest.mark.parametrize("aborted", [0, 60, 61, 62, 63, 188, 189, 190, 191, 1_000])
def test_the_newest_positions_are_found_behind_any_number_of_aborted_records(aborted: int) -> None:
    """A writer may have failed for a long time. The records are searched backwards in growing ranges without a gap."""
    direct = Direct()
    direct.feed(1)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    direct.flush()
    newest = newest_row(direct.broker, ROWS, 0)
    epoch = direct.cluster.open_writer("tallystream-aggregator-0") or 0
    direct.cluster.add_partitions("tallystream-aggregator-0", epoch, [ROWS])
    direct.cluster.produce("tallystream-aggregator-0", epoch, ROWS, [(b"key", b"value")] * aborted)
    direct.cluster.end("tallystream-aggregator-0", epoch, "abort")
    direct.flush()
    assert newest_row(direct.broker, ROWS, 0) == newest


def test_positions_that_are_replaced_while_they_are_searched_are_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction may remove the newest row of a moment ago. A table must not begin beside one that is published."""
    direct = Direct()
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    direct.flush()
    assert newest_row(direct.broker, ROWS, 7) is None
    bounds, older = direct.broker.bounds, [Bounds(0, 1, 1)]
    monkeypatch.setattr(direct.broker, "bounds", lambda places: {ROWS: older.pop()} if older else bounds(places))
    with pytest.raises(BrokerError, match="it grows while it is searched"):
        newest_row(direct.broker, ROWS, 0)


def test_positions_of_another_version_stop_the_loop() -> None:
    """An older row before them would be a wrong begin."""
    direct = Direct()
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    direct.cluster.append(ROWS, key_of(0), b'{"v":2}')
    with pytest.raises(TallystreamError, match="written by another version"):
        direct.loop().run_epoch(direct.store, (2, 0), 1)


def test_a_record_without_a_value_is_no_positions_row() -> None:
    """Somebody has written it. The row before it counts, and the loop goes on there."""
    direct = Direct()
    direct.feed(1)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    direct.cluster.append(ROWS, key_of(0), None)
    direct.feed(2)
    direct.loop().run_epoch(direct.store, (2, 0), 1)
    assert direct.published() == {METRICS: 2}


def test_steps_between_epochs_are_published_and_stored_by_the_next_one() -> None:
    """They are reported as the next epoch's, which does not begin again."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(1, 2)
    loop.run_between(direct.after(2))
    assert direct.published() == {METRICS: 2}
    report = loop.run_epoch(direct.store, (1, 1), 1)
    assert (report.records, report.restarts, round(report.seconds)) == (2, 0, 3)
    direct.cluster.partition(METRICS).delete_before(2)
    report = direct.loop().run_epoch(direct.store, (1, 2), 1)  # the state has them
    assert (report.records, report.restarts) == (0, 1)


def test_a_loop_does_not_go_on_after_a_stop() -> None:
    """The stored state is the last thing that a stopped loop does."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.stopped = True
    direct.feed(1)
    loop.run_between(direct.after(30))
    assert direct.published() == {METRICS: 0}


@pytest.mark.parametrize("waits", ["record", "next step", "backlog", "outage", "transaction"])
def test_a_stop_is_noticed_within_a_moment(waits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the loop waits for, and in the middle of a step."""
    monkeypatch.setattr(loop_module, "FEW_RECORDS", 1)
    direct = Direct()
    loop = direct.loop(spacing_s=60 if waits == "next step" else 0.1)
    loop.run_epoch(direct.store, (1, 0), 1)
    stop_s = direct.monotonic() + 25.05
    if waits == "transaction":
        epoch = direct.cluster.open_writer("other") or 0
        direct.cluster.add_partitions("other", epoch, [ROWS])
        direct.cluster.produce("other", epoch, ROWS, [(b"key", b"value")])
    elif waits != "record":
        direct.feed(1)

    def fail(request: str) -> None:
        if waits == "outage" and "write" in request:
            raise UnavailableError(f"{request} failed")
        if waits == "backlog" and request == "read":
            direct.pass_time(0.1)
            direct.feed(1, 2)

    direct.fail, loop._stopped = fail, lambda: direct.monotonic() >= stop_s
    report = loop.run_epoch(direct.store, (1, 1), 600)
    assert report.stopped
    assert direct.monotonic() - stop_s < 0.3
    assert waits != "backlog" or report.steps == 3  # two of ten seconds, and the rest


@pytest.mark.parametrize(("published_s", "pause_s"), [(0.02, 0.08), (3, 3), (60, 5)])
def test_a_loop_pauses_as_long_as_it_published(published_s: float, pause_s: float) -> None:
    """So a busy table takes larger steps. It pauses for five seconds at most, and steps are never closer than asked."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    ended_s, pauses_s = list[float](), list[float]()

    def fail(request: str) -> None:
        if request.startswith("commit"):
            direct.pass_time(published_s)
            ended_s.append(direct.monotonic())
        if request == "read":
            direct.feed(1)
            pauses_s.extend(round(direct.monotonic() - end_s, 3) for end_s in ended_s[-1:])

    direct.fail = fail
    loop.run_epoch(direct.store, (1, 1), 200)
    assert set(pauses_s) == {pause_s}


def test_a_loop_that_begins_again_frees_its_table_first() -> None:
    """Two would need twice the memory."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    table = ref(loop._table)
    loop.close()
    gc.collect()
    assert table() is None


def test_an_outage_between_epochs_is_left_to_the_next_one() -> None:
    """It begins again at what is published."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)

    def fail(request: str) -> None:
        if "write" in request:
            raise BrokerError(f"{request} failed")

    direct.fail = fail
    direct.feed(1)
    loop.run_between(direct.after(30))
    direct.fail = lambda _: None
    assert loop.run_epoch(direct.store, (1, 1), 1).restarts == 1
    assert direct.published() == {METRICS: 1}


def test_a_loop_that_is_replaced_between_epochs_does_not_fence_the_other(caplog: pytest.LogCaptureFixture) -> None:
    """Spark may run the next epoch elsewhere: the loop that went on ends, and begins nothing."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    other = direct.loop()
    other.run_epoch(direct.store.copy(1), (1, 1), 1)
    direct.feed(1)
    direct.requests.clear()
    loop.run_between(direct.after(30))
    assert "is fenced" in caplog.text
    assert "open tallystream-aggregator-0" not in direct.requests
    other.run_between(direct.after(2))
    assert direct.published() == {METRICS: 1}


class Feeding(Batch):
    """A store during whose changes records arrive."""

    direct: Direct

    def add(self, number: int, entry: bytes) -> None:
        """Add an entry."""
        super().add(number, entry)
        self.direct.feed(self.direct.cluster.now_ms)
        self.direct.pass_time(1)


def test_steps_go_on_while_a_large_state_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are published at once, and stored, too. After ten seconds the rest is stored first: Spark waits for it."""
    monkeypatch.setattr(storage, "ENTRY_BYTES", 1)
    direct = Direct()
    store = Feeding(0)
    direct.store, store.direct = store, direct
    for number in range(50):
        direct.feed(1, name=f"n{number}")
    loop = direct.loop()
    report = loop.run_epoch(store, (1, 0), 1)
    assert direct.published() == {METRICS: report.records}
    assert 55 < report.records < 65
    direct.cluster.partition(METRICS).delete_before(report.records)
    report = direct.loop().run_epoch(store, (1, 1), 1)  # the state has them
    assert report.restarts == 1
