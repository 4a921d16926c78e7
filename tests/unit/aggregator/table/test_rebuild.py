"""Rebuilds of the table from `metrics-table`: single cases. test_properties.py has random crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from support.topic import Topic, counter, gauge
from support.undecodable import UNDECODABLE
from tallystream.ulid import new_ulid
from tallystream_aggregator.jobs import rebuild
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.reader import Read
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.table import State
from tallystream_aggregator.table.layouts import Layouts
from tallystream_aggregator.table.restore.latest_rows import LatestRows, RebuildError
from tallystream_aggregator.table.restore.restore import missing_records, restore
from tallystream_aggregator.table.state import Life, Row
from tallystream_aggregator.versions import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator


def latest_rows(topic: Topic) -> LatestRows:
    """Return the latest rows after the topic's last batch."""
    found = LatestRows()
    for row in topic.changes.rows:
        found.add(row.key, row.value())
    return found


def rows_of(state: State, life: Life) -> list[Row | None]:
    """Return a life's rows in the order of their metrics' numbers."""
    layouts = Layouts(state.metrics)
    return [layouts.row(life, number) for number in sorted(layouts.numbers(life))]


def test_the_first_batch_of_a_rebuilt_state_writes_all_its_rows() -> None:
    """Another rebuild needs only the rows of that batch."""
    topic = Topic().snapshot(counter(5), gauge(2.5)).short(3)
    topic.table.state.published = False
    for lives in topic.table.state.lives.values():
        for life in lives:
            life.offsets.clear()
    topic.append(b"script", b'{"name":"n","value":4}')
    state = restore(latest_rows(topic)).states[0]
    assert {
        life.instance: [row and row.values for row in rows_of(state, life)] for (life,) in state.lives.values()
    } == {
        "app-1": [(5,), (2.5,)],
        "script": [(4, 4)],
    }


def test_a_topic_without_a_shard_record_is_an_error() -> None:
    """No batch was finished, so there is nothing to rebuild from. The result is not an empty table."""
    with pytest.raises(RebuildError, match="nothing to rebuild from"):
        restore(LatestRows())


@pytest.mark.parametrize("bad", UNDECODABLE.values(), ids=UNDECODABLE)
@pytest.mark.parametrize("is_key", [True, False], ids=["key", "value"])
def test_a_foreign_record_is_refused_until_it_is_deleted(bad: bytes, is_key: bool) -> None:
    """The error names the record and its partition. A deletion without a writer counts, but only in that partition."""
    found = latest_rows(Topic().snapshot(counter(5)))
    key, value = (bad, b"{}") if is_key else (b'["life","app","host-1","life",0]', bad)
    found.add(key, value, partition=2)
    found.add(key, None)
    with pytest.raises(RebuildError, match=r"is not a record of the table \(.*in partition 2\.$"):
        restore(found)
    found.add(key, None, partition=2)
    assert restore(found).states[0].lives.keys() == {"app-1"}


def test_a_row_that_was_published_again_after_a_foreign_record_counts() -> None:
    """The aggregator has already repaired the key."""
    rows = Topic().snapshot(counter(5)).changes.rows
    found = LatestRows()
    for row in rows:
        found.add(row.key, b"no row")
        found.add(row.key, row.value())
    assert restore(found).states[0].lives.keys() == {"app-1"}


@pytest.mark.parametrize("shard", [b'"x"', b"-1", b"[]", b"1.5", b"9", b"null"])
def test_forgotten_sums_of_an_unknown_shard_are_refused(shard: bytes) -> None:
    """The error names the record by its key."""
    found = latest_rows(Topic().snapshot(counter(5)))

    def rebuild() -> None:
        forgotten_sums = b'{"app":"a","name":"n","type":"counter","lives":1,"held":[[[1,"1",0,"0"]],[]]}'
        found.add(b'["forgotten",' + shard + b',"a","counter","n",[]]', forgotten_sums, partition=9)
        restore(found)

    with pytest.raises(RebuildError, match=r"metrics-table: .*forgotten"):
        rebuild()


@pytest.mark.parametrize("ledger_rows", [1, 0])
def test_a_row_with_an_epoch_that_no_writer_has_is_ignored(monkeypatch: pytest.MonkeyPatch, ledger_rows: int) -> None:
    """It replaces no row, and its high epoch makes no other row outdated. The same holds without a ledger."""
    rows = Topic().snapshot(counter(5)).changes.rows
    opened = [LedgerRow(kind="opened", query=ledger.QUERY, epoch=3, ts=1)] * ledger_rows
    written = [(row.key, row.value()) for epoch in (2**62, 3) for row in rows]
    monkeypatch.setattr(ledger, "read_topic", lambda *_, **__: (Read(b"k", ledger.encode(row), 0) for row in opened))
    monkeypatch.setattr(rebuild, "read_topic", lambda *_, **__: (Read(k, v, n) for n, (k, v) in enumerate(written)))
    found = rebuild.read_table(Topics(), {}, lambda _: None)
    assert (found.epoch, len(found.rows)) == (3, len(rows))


def test_a_batch_that_finishes_while_the_table_is_read_is_not_included(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that a running aggregator writes after the read are not in the table, so their records are read again."""
    rows = Topic().snapshot(counter(5)).changes.rows
    batches = [LedgerRow(kind="batch", query=ledger.QUERY, epoch=3, batch=1, ts=1, end={"metrics": {"0": 1}})]

    def read(*_: object, **__: object) -> Iterator[Read]:
        for number, row in enumerate(rows):
            yield Read(row.key, row.value(), number)
        batches.append(msgspec.structs.replace(batches[0], batch=2, end={"metrics": {"0": 2}}))

    monkeypatch.setattr(ledger, "read_topic", lambda *_, **__: (Read(b"k", ledger.encode(row), 0) for row in batches))
    monkeypatch.setattr(rebuild, "read_topic", read)
    found, finished = rebuild.read_finished(Topics(), {}, lambda _: None)
    assert (len(found.rows), finished) == (len(rows), {"metrics": {"0": 1}})


def test_rows_and_deletions_of_a_replaced_writer_change_nothing() -> None:
    """A later row of a lower epoch replaces no row and restores no deleted one.

    A deletion of a lower epoch, or of an unknown writer, deletes nothing. After a deletion, a newer row counts.
    """
    topic = Topic().snapshot(counter(5))
    found = LatestRows()
    rows = list(topic.changes.rows)
    for row in rows:
        found.add(row.key, row.value())
    topic.snapshot(counter(4), seq=2, life=new_ulid(0), at=0)
    before = dict(found.rows)
    for row in rows:
        found.add(row.key, row.value())
    assert found.rows == before
    assert found.epoch == 3
    key = rows[0].key
    for writer in (UNKNOWN, (2, 10)):
        found.add(key, None, writer)
        assert found.rows == before
    found.add(key, None, (3, 10))
    for batch in (2, 9):
        found.add(key, rows[0].value(), UNKNOWN)
        assert ((0, key) in found.rows) == (batch == 9)


def test_the_only_row_of_a_key_counts_whatever_its_epoch() -> None:
    """After compaction, a record of an earlier epoch may follow records of later ones. It is the newest of its key."""
    topic = Topic().snapshot(counter(5))
    (row, shard) = topic.changes.rows
    found = LatestRows()
    found.add(shard.key, shard.value())
    found.add(row.key, row.value())
    assert restore(found).states[0].lives.keys() == {"app-1"}


def test_a_metric_that_moved_to_another_part_counts_only_in_the_newer_row() -> None:
    """After a tombstone a metric may move. If the batch then crashes, the older part's row still has the metric."""
    topic, found = Topic(), LatestRows()

    def written(key_ends: bytes = b"") -> None:
        for row in topic.changes.rows:
            if row.key.endswith(key_ends):
                found.add(row.key, row.value())

    topic.snapshot(gauge(1), part=0)
    written()
    topic.snapshot(counter(5), part=1)
    written()
    topic.append(b"app-1", None)
    topic.snapshot(counter(7), seq=2, part=0)
    written(b",0]")
    (state,) = restore(found).states
    ((life,),) = state.lives.values()
    assert rows_of(state, life) == [Row(0, 2, (7,))]


def test_records_that_were_deleted_before_the_rebuild_are_counted() -> None:
    """They are the records after the last one that the shard includes, up to the first one that the topic has."""
    state = State(offsets={"metrics:0": 41})
    assert missing_records(state.offsets, {"metrics:0": 42, "metrics:1": 0}) == {}
    assert missing_records(state.offsets, {"metrics:0": 50, "metrics:1": 7}) == {"metrics:0": 8, "metrics:1": 7}


def test_a_row_too_large_for_the_topic_has_the_number_of_its_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics themselves are left out, and a rebuild names the life."""
    monkeypatch.setattr("tallystream_aggregator.table.rows.MAX_ROW_BYTES", 300)
    topic = Topic().snapshot(*(counter(1, f"metric-{number}") for number in range(20)))
    found = restore(latest_rows(topic))
    assert [key[1] for key in found.omitted] == ["app-1"]


def test_the_size_of_a_row_is_measured_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's limit is in bytes, so characters of several bytes count as several."""
    monkeypatch.setattr("tallystream_aggregator.table.rows.MAX_ROW_BYTES", 300)
    topic = Topic().snapshot(counter(1, "\N{EURO SIGN}" * 100))
    assert [key[1] for key in restore(latest_rows(topic)).omitted] == ["app-1"]
