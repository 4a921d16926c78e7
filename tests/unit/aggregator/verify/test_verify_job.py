"""What verify reads from topics: records of transactions, the ledger, and positions rows."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any
from zlib import crc32

import pytest

from support.malformed import UNDECODABLE
from support.simulation.direct import METRICS, ROWS, Direct
from support.simulation.system import TOPICS
from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.stream.broker import Bounds, Place
from tallystream_aggregator.table import TableSettings
from tallystream_aggregator.verify import job
from tallystream_aggregator.verify.advance import Advance, Change
from tallystream_aggregator.verify.job import changes_of, committed, settled
from tallystream_aggregator.verify.lives import Settings, Tags
from tallystream_aggregator.verify.published import Moment, moment
from tallystream_aggregator.verify.replay import Replay

ZERO, ONE = "metrics:0", "metrics:1"
BEGIN_MS = 1_700_000_000_000


def row(*, shards: int = 1, **fields: Any) -> LedgerRow:
    """Return a row of the ledger."""
    return LedgerRow(**{"generation": 1, "shards": shards, "forget_after_ms": 5, "max_table_bytes": 7} | fields)


def test_the_table_and_the_replay_have_the_same_settings_by_default() -> None:
    """Else they would refuse other records where the ledger says nothing."""
    assert asdict(Settings()) == asdict(TableSettings()) | {"tags": asdict(Tags())}


def test_settings_change_where_the_rows_say() -> None:
    """A table that begins has those of its first driver, and no earlier ones. Rows of epochs change nothing."""
    begun, later, split = ({"metrics": {"0": offset}} for offset in (7, 20, 25))
    rows = [row(start={"metrics": {"0": 0}}), row(start=begun, otlp=["a"])]
    rows += [row(end={"metrics": {"0": 9}}, otlp=["a"]), row(end=later, forget_after_ms=6)]
    rows += [row(shards=3, end=split, max_table_bytes=9)]
    rows += [row(shards=3, end=split, shard_ends=[split, later], max_table_bytes=8)]
    changes = [Change(({ZERO: 7},), 1, 5, 7, ("a",)), Change(({ZERO: 20},), 1, 6, 7), Change(({ZERO: 25},), 3, 5, 9)]
    assert changes_of(rows) == [*changes, Change(({ZERO: 25}, {ZERO: 20}), 3, 5, 8)]
    assert changes_of([]) == []


def test_a_positions_row_has_the_moment_of_a_shard_or_of_all() -> None:
    """The combiner's has the positions of each. Sums name what all have read. Without shards, none has begun."""
    content = {"v": 1, "shard": 0, "of": 2, "sum_tags": {"drop": ["pod"]}, "positions": {"metrics": {"0": 3}}}
    tags = Tags(frozenset({"pod"}))
    assert moment(json.dumps(content).encode()) == Moment(({ZERO: 3},) * 2, tags)
    began = content | {"begin": {"metrics": {"1": 7}}, "last_records": {"metrics": {"0": [2, 4]}}}
    assert moment(json.dumps(began).encode()) == Moment(({ZERO: 3},) * 2, tags, {ONE: 7}, {ZERO: (2, 4)})
    combined = content | {"shard": 2, "shards": {"1": {"metrics": {"0": 4}}, "0": {"metrics": {"0": 3, "1": 1}}}}
    found = moment(json.dumps(combined).encode())
    assert found is not None
    assert (found.shards, found.ends) == (({ZERO: 3, ONE: 1}, {ZERO: 4}), {ZERO: 3})
    assert moment(json.dumps(content | {"shard": 2}).encode()) is None


@pytest.mark.parametrize("value", [None, *UNDECODABLE.values(), b'{"shard":1,"of":2}'])
def test_what_is_no_positions_row_is_an_error(value: bytes | None) -> None:
    """Nothing else may be at its key."""
    with pytest.raises(ValueError, match="no positions row"):
        moment(value)


def snapshot(count: int) -> bytes:
    """Return a snapshot with one counter."""
    header = {"v": 1, "app": "shop", "life": "01HF7YAT00" + "A" * 16, "part": 0, "seq": count, "ts": 0}
    metrics = [{"type": "counter", "name": "n", "count": count}]
    return json.dumps(header | {"every_ms": 1000, "final": False, "metrics": metrics}).encode()


def test_a_forget_record_for_another_number_of_shards_than_the_table_has_is_refused() -> None:
    """The number is that at the record: the table may be split later."""
    forget = b'{"v":1,"forget":{"metric":"n","shards":2}}'
    values = [snapshot(1), forget, snapshot(2), forget]
    records = [(offset, BEGIN_MS + offset, b"app-1", value) for offset, value in enumerate(values)]
    replay = Replay()
    advance = Advance(replay, {}, {ZERO: iter(records)})
    counter = ("shop", "counter", "n", ())
    advance.change(Change(({},), 1, 1, 1 << 20))
    advance.change(Change(({ZERO: 3},), 2, 1, 1 << 20))
    assert dict(advance.letters) == {(ZERO, 1): 1}
    assert replay.sums()[counter]["count"] == 2
    advance.change(Change(({ZERO: 4},), 2, 2, 1 << 20))  # other settings of the same shards
    advance.finish([{ZERO: 4}] * 2)
    assert dict(advance.letters) == {(ZERO, 1): 1}
    assert replay.sums()[counter]["count"] == 0


def test_a_ledger_that_begins_in_the_middle_of_a_table_has_the_shards_of_its_begin() -> None:
    """The ledger was deleted, and the shards were apart at the next start."""
    found: dict[int, int] = {}
    for shard in (0, 1):
        key = next(b"app-%d" % n for n in range(9) if crc32(b"app-%d" % n) % 2 == shard)
        replay = Replay()
        advance = Advance(replay, {}, {ZERO: iter([(n, BEGIN_MS + n, key, snapshot(1 + n)) for n in range(4)])})
        for change in changes_of([row(shards=2, shard_ends=[{"metrics": {"0": 1}}, {"metrics": {"0": 3}}])]):
            advance.change(change)
        found[shard] = replay.sums()["shop", "counter", "n", ()]["count"]
        advance.finish([{ZERO: 4}] * 2)
        assert (advance.records, dict(advance.letters)) == (4, {})
        assert replay.sums()["shop", "counter", "n", ()]["count"] == 4
    assert found == {0: 1, 1: 3}


def test_a_shard_that_has_not_read_a_partition_has_none_of_its_records() -> None:
    """Its positions lack the partition. It reads the records later, which others have read before."""
    key = next(b"app-%d" % n for n in range(9) if crc32(b"app-%d" % n) % 2 == 0)
    replay = Replay()
    advance = Advance(replay, {}, {ONE: iter([(0, BEGIN_MS, key, snapshot(1))])})
    advance.finish([{}, {ONE: 1}])
    assert ("shop", "counter", "n", ()) not in replay.sums()
    advance.finish([{ONE: 1}] * 2)
    assert replay.sums()["shop", "counter", "n", ()]["count"] == 1


def test_progress_is_told_while_records_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time with the number of records so far."""
    monkeypatch.setattr("tallystream_aggregator.verify.advance.PROGRESS_EVERY", 2)
    told: list[int] = []
    records = iter([(n, BEGIN_MS + n, b"app-1", snapshot(1 + n)) for n in range(5)])
    Advance(Replay(), {}, {ZERO: records}, told.append).finish([{ZERO: 5}])
    assert told == [2, 4]


# Topics.


DEAD = Place("metrics-dead", 0)


class Partition:
    """A broker with one partition that ends at `end`, for a reader of committed records at each of `stable` in turn."""

    def __init__(self, end: int, stable: list[int]) -> None:
        self._end, self._stable = end, stable

    def bounds(self, places: list[Place]) -> dict[Place, Bounds]:
        """Return the bounds."""
        stable = self._stable.pop(0) if len(self._stable) > 1 else self._stable[0]
        return {place: Bounds(0, stable, self._end) for place in places if place == DEAD}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "PAUSE_S", 0)


def test_open_transactions_are_waited_for() -> None:
    """A reader does not see what others commit after the first record of an open transaction."""
    broker: Any = Partition(7, [3, 3, 8, 9])
    assert settled(broker, DEAD) == Bounds(0, 8, 7)
    assert settled(broker, Place("metrics-other", 0)) is None


def test_a_transaction_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its dead letters would be missing, and those of others after it."""
    monkeypatch.setattr(job, "MAX_WAIT_S", 0)
    broker: Any = Partition(7, [3])
    with pytest.raises(TallystreamError, match=r"^metrics-dead:0: a transaction has been open for 0 s\.$"):
        settled(broker, DEAD)


@pytest.mark.parametrize(("partitions", "kilobytes"), [(1, 8192), (8, 1024), (100, 256)])
def test_partitions_share_the_memory_of_one(partitions: int, kilobytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Very many have a little more, so that each is read in large parts."""
    direct, options = Direct(partitions=partitions), list[dict[str, str]]()
    direct.cluster.create(TOPICS.ledger, 1)
    for partition in range(partitions):
        direct.feed(1, place=Place(TOPICS.metrics, partition))
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    monkeypatch.setattr(job, "KafkaBroker", lambda of, *_: options.append(of) or direct.broker)
    monkeypatch.setattr(job, "check_login", lambda _: None)
    assert job.run(Cluster("memory")).differences == []
    (limits,) = [of for of in options if "queued.max.messages.kbytes" in of]
    assert limits["queued.max.messages.kbytes"] == str(kilobytes)
    assert limits["fetch.message.max.bytes"] == str(1024 * kilobytes)


@pytest.mark.parametrize("written", [0, 1, 5])
def test_records_that_the_cluster_lost_are_named(monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    """Also when other records have their offsets, or some of them. There is nothing left to compare the sums with."""
    direct = Direct(partitions=2)
    direct.cluster.create(TOPICS.ledger, 1)
    for place in (Place(TOPICS.metrics, 0), Place(TOPICS.metrics, 1)):
        direct.feed(1, 2, 3, place=place)
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    monkeypatch.setattr(job, "KafkaBroker", lambda *_: direct.broker)
    monkeypatch.setattr(job, "check_login", lambda _: None)
    assert job.run(Cluster("memory")).differences == []
    direct.cluster.partition(METRICS).truncate(1)
    direct.feed(*range(written))
    with pytest.raises(TallystreamError, match="metrics:0 lost the offsets 1 to 2, as by an unclean leader election"):
        job.run(Cluster("memory"))


def test_all_committed_records_are_read() -> None:
    """Progress is told after each thousand of them."""
    direct = Direct()
    for number in range(2_500):
        direct.cluster.append(ROWS, None, b"%d" % number)
    progress: list[tuple[int, int]] = []
    found = committed(direct.broker, ROWS, lambda done, of: progress.append((done, of)))
    assert [value for *_, value in found] == [b"%d" % number for number in range(2_500)]
    assert progress == [(1_000, 2_500), (2_000, 2_500)]
