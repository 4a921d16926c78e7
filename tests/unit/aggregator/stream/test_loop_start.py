"""How the loop of a shard begins: a new table, a claim, and transactions of others that are still open."""

from __future__ import annotations

import pytest

from support.simulation.checkpoints import Batch
from support.simulation.direct import METRICS, ROWS, Direct
from tallystream.errors import TallystreamError
from tallystream_aggregator.stream.broker import FencedError, Place
from tallystream_aggregator.stream.positions import newest_row
from tallystream_aggregator.stream.restore import MissingRowsError


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
