"""The keys that the active writer publishes again, found on topics in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import KafkaException

from tallystream.errors import TallystreamError
from tallystream_aggregator.jobs.aggregate.repair import Checked, Repair, TopicWatch, last_checked
from tallystream_aggregator.kafka.ledger import QUERY, Epochs, LedgerRow
from tallystream_aggregator.kafka.reader import Read
from tallystream_aggregator.repair_request import Request, read_request, write_request
from tallystream_aggregator.versions import UNKNOWN, Version, deletion_header, deletion_version, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

FORGED = 2**62
"""An epoch that no aggregator has."""

A, B = (0, b"a"), (0, b"b")


def row(*, epoch: int, batch: int = 1) -> bytes:
    """Return a record as the table writes it: the writer comes last."""
    return b'{"count":7,"epoch":%d,"batch":%d}' % (epoch, batch)


class Record(NamedTuple):
    """A record of the topic. `writer` is the version in the header of a deletion."""

    key: bytes
    value: bytes | None
    writer: Version = UNKNOWN
    partition: int = 0


class Topic(TopicWatch):
    """A watch of a topic in memory, by the writer of epoch 3, whose newest batch is 9."""

    def __init__(
        self,
        *records: Record | tuple[bytes, bytes | None],
        ask: Callable[[], int | None] = lambda: 3,
        checked: Checked = Checked({}, 0),  # noqa: B008
        partitions: int = 1,
    ) -> None:
        self.logs: list[list[Record]] = [[] for _ in range(partitions)]
        self.append(*records)
        self._topic = "t"
        self._begin(Epochs(ask), 3, lambda: 9, checked)

    def append(self, *records: Record | tuple[bytes, bytes | None]) -> Topic:
        """Append records."""
        for record in (Record(*record) for record in records):
            self.logs[record.partition].append(record)
        return self

    def close(self) -> None:
        """Do nothing."""

    def _ends(self) -> dict[int, int]:
        return {partition: len(log) for partition, log in enumerate(self.logs)}

    def _read(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Read]:
        for partition, start in starts.items():
            for offset, record in enumerate(self.logs[partition][start : ends[partition]], start):
                yield Read(record.key, record.value, offset, partition, record.writer)


def test_a_record_with_an_unknown_epoch_is_found() -> None:
    """It is found once, because records are read once."""
    topic = Topic((b"a", row(epoch=2)), (b"a", row(epoch=FORGED)), (b"b", row(epoch=2)))
    assert (topic.poll(), topic.poll()) == ({A}, set())


def test_a_record_after_one_with_a_higher_epoch_is_found() -> None:
    """This holds for rows and deletions, also without a writer."""
    topic = Topic((b"a", row(epoch=1, batch=9)), (b"a", row(epoch=2)))
    assert topic.poll() == set()
    assert topic.append((b"a", row(epoch=1))).poll() == {A}
    assert topic.append(Record(b"b", None, (1, 4))).poll() == {B}
    assert topic.append((b"a", None), (b"b", b"no row")).poll() == {A, B}
    assert topic.append((b"a", row(epoch=3)), Record(b"b", None, (3, 1))).poll() == set()


def test_a_record_of_an_earlier_batch_of_the_same_writer_is_found() -> None:
    """An executor that Spark gave up writes it after a later batch. A batch that runs again has the same number."""
    topic = Topic().append((b"a", row(epoch=3, batch=4)), (b"b", row(epoch=3, batch=5)), (b"a", row(epoch=3, batch=5)))
    assert topic.poll() == set()
    assert topic.append((b"a", row(epoch=3, batch=4))).poll() == {A}
    assert topic.append(Record(b"b", None, (3, 4)), Record(b"b", None, (3, 5)), (b"a", b"no row")).poll() == {A, B}
    assert topic.append((b"a", row(epoch=3, batch=5)), (b"a", row(epoch=3, batch=6))).poll() == set()


def test_a_record_of_a_batch_that_has_not_begun_is_found() -> None:
    """No aggregator wrote it. Our later records are not stale: the shards would publish them again and again."""
    topic = Topic().append((b"a", row(epoch=3, batch=10)), (b"b", row(epoch=3, batch=8)))
    assert topic.poll() == {A}
    assert topic.append((b"a", row(epoch=3, batch=9))).poll() == set()


def test_a_record_of_an_older_writer_after_our_start_is_found() -> None:
    """This holds before we have written anything: the writer of epoch 2 was replaced when our epoch began."""
    assert Topic((b"a", row(epoch=2))).append((b"b", row(epoch=2))).poll() == {B}


def test_reading_starts_at_the_offset_that_was_checked_last() -> None:
    """The writer of epoch 2 checked up to offset 1. Later records of lower epochs are stale, in any order."""
    records = ((b"old", row(epoch=1)), (b"a", row(epoch=1)), (b"b", row(epoch=2)))
    topic = Topic(*records, checked=Checked({"t": {"0": 1}}, 2))
    assert topic.poll() == {A}
    assert topic.at == {"0": 3}


def test_each_partition_has_its_own_order() -> None:
    """A record is stale if a higher epoch comes before it in the same partition."""
    topic = Topic(
        Record(b"a", row(epoch=2), partition=1),
        Record(b"b", row(epoch=1), partition=0),
        Record(b"a", row(epoch=1), partition=1),
        partitions=2,
    )
    assert topic.poll() == {(1, b"a")}


def test_records_of_a_successor_are_not_stale() -> None:
    """Another aggregator has a higher epoch than ours, so our lease will end this one."""
    topic = Topic(ask=lambda: 4).append((b"a", row(epoch=3)), (b"a", row(epoch=4)), (b"b", row(epoch=5)))
    assert topic.poll() == {B}


def test_an_impossible_epoch_is_unknown_even_without_a_ledger() -> None:
    """Our later records are not stale: otherwise the shards would publish them again and again."""
    topic = Topic(ask=lambda: None).append((b"a", row(epoch=FORGED)), (b"b", row(epoch=3)))
    assert topic.poll() == {A}


def test_an_unreadable_ledger_is_read_again_at_the_next_poll() -> None:
    """The caller logs the error, and the same records are checked again."""
    epochs: list[int] = []

    def ask() -> int:
        if not epochs:
            raise TallystreamError("the ledger's end was not reached in time")
        return epochs[0]

    topic = Topic(ask=ask).append((b"a", row(epoch=3)), (b"a", row(epoch=FORGED)))
    with pytest.raises(KafkaException, match="not reached in time"):
        topic.poll()
    assert topic.at == {}
    epochs.append(3)
    assert topic.poll() == {A}


class Repaired:
    """A repair of two topics, two shards, by the writer of epoch 3; `woken` counts the calls that wake the query."""

    def __init__(self, path: Path) -> None:
        self.path, self.woken = path, 0
        self.table, self.agg = Topic(partitions=2), Topic()
        self.repair = Repair(self.table, self.agg, path, epoch=3, shards=2, wake=self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def poll(self) -> Request | None:
        """Poll once, and return the request to the shards."""
        self.repair.poll()
        return read_request(self.path)

    def carried_out(self, number: int, *shards: int, epoch: int = 3) -> None:
        """Append the record of shards that have carried out a request."""
        for shard in shards:
            value = b'{"v":1,"shard":%d,"repaired":%d,"epoch":%d,"batch":9}' % (shard, number, epoch)
            self.table.append(Record(b'["shard",%d]' % shard, value, partition=shard))

    @property
    def checked(self) -> dict[str, dict[str, int]]:
        """Return the offsets for the ledger."""
        return self.repair.checked("table", "agg")


def test_a_request_stays_until_all_shards_have_carried_it_out(tmp_path: Path) -> None:
    """Until then the query is woken at each poll, and the ledger gets no offset beyond the keys."""
    repaired = Repaired(tmp_path / "c.repair")
    assert (repaired.poll(), repaired.woken) == (None, 0)
    before = repaired.checked
    assert before == {"table": {"0": 0, "1": 0}, "agg": {"0": 0}}
    repaired.table.append(Record(b"r", row(epoch=1), partition=1))
    repaired.agg.append((b"s", row(epoch=1)))
    request = Request(3, 1, {1: [b"r"]}, [b"s"])
    assert (repaired.poll(), repaired.woken, repaired.checked) == (request, 1, before)
    repaired.carried_out(1, 0)
    repaired.table.append(Record(b'["shard",1]', b'{"repaired":1{"epoch":3,"batch":9}', partition=1))  # not JSON
    assert (repaired.poll(), repaired.woken, repaired.checked) == (request, 2, before)
    repaired.carried_out(1, 1)
    assert (repaired.poll(), repaired.woken) == (None, 2)
    assert repaired.checked == {"table": {"0": 1, "1": 3}, "agg": {"0": 1}}


def test_keys_that_are_found_later_make_a_new_request(tmp_path: Path) -> None:
    """It includes the keys of the first one. Each shard must carry out the new one, too."""
    repaired = Repaired(tmp_path / "c.repair")
    repaired.table.append(Record(b"r", row(epoch=1)))
    repaired.poll()
    for number, key in ((2, b"q"), (3, b"r")):
        repaired.carried_out(number - 1, 0, 1)
        repaired.table.append(Record(key, row(epoch=1)))
        assert repaired.poll() == Request(3, number, {0: [b"q", b"r"]})
    assert repaired.poll() is not None
    repaired.carried_out(3, 0, 1)
    assert repaired.poll() is None


def test_the_request_of_an_earlier_writer_is_replaced(tmp_path: Path) -> None:
    """A shard's record of a lower epoch is stale, and is not a confirmation."""
    path = tmp_path / "c.repair"
    write_request(path, Request(2, 1))
    repaired = Repaired(path)
    assert read_request(path) is None
    repaired.table.append(Record(b"r", row(epoch=1)))
    request = repaired.poll()
    write_request(path, Request(2, 1))
    assert repaired.poll() == request == Request(3, 1, {0: [b"r"]})
    repaired.carried_out(1, 0, 1, epoch=2)
    assert repaired.poll() == Request(3, 2, {0: [b'["shard",0]', b"r"], 1: [b'["shard",1]']})


def test_a_shard_s_record_of_an_earlier_batch_is_no_confirmation(tmp_path: Path) -> None:
    """It has the number of an earlier request. The shard publishes its record again with the next one."""
    repaired = Repaired(tmp_path / "c.repair")
    repaired.table.append(Record(b"r", row(epoch=1)))
    repaired.poll()
    repaired.carried_out(1, 0, 1)
    repaired.table.append(Record(b'["shard",0]', b'{"v":1,"shard":0,"repaired":0,"epoch":3,"batch":8}'))
    assert repaired.poll() == Request(3, 2, {0: [b'["shard",0]', b"r"]})
    repaired.carried_out(2, 0, 1)
    assert repaired.poll() is None


def test_an_unreadable_request_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning names the file, and batches continue."""
    path = tmp_path / "c.repair"
    path.write_bytes(b"{")
    assert read_request(path) is None
    assert "c.repair can't be read" in caplog.text


def test_the_ledger_has_the_offsets_that_were_checked() -> None:
    """The last row with offsets counts, and the highest epoch. Rows of other queries are ignored."""
    rows = [
        LedgerRow(kind="batch", query=QUERY, epoch=1, batch=1, ts=1, checked={"t": {"0": 4}}),
        LedgerRow(kind="batch", query=QUERY, epoch=2, batch=2, ts=2, checked={"t": {"0": 7}}),
        LedgerRow(kind="opened", query=QUERY, epoch=3, ts=3),
        LedgerRow(kind="opened", query="other", epoch=9, ts=4, checked={"t": {"0": 9}}),
    ]
    assert last_checked(rows) == Checked({"t": {"0": 7}}, 3)
    assert last_checked(rows[2:]) == last_checked([]) == Checked({}, 0)


def test_the_version_of_a_record_is_at_its_end_or_in_a_header() -> None:
    """Names and values before it do not matter."""
    assert version_of(b'{"name":"\\"epoch\\":9}","epoch":12,"batch":345}') == (12, 345)
    assert version_of(b'{"epoch":12}') == (12, 0)
    assert version_of(b'{"name":"x"}') is None
    assert deletion_version([("other", b"[1,2]"), ("writer", deletion_header((3, 17)))]) == (3, 17)
    for headers in (None, [], [("writer", b"[3]")], [("writer", None)], [("writer", b"[3,-1]")]):
        assert deletion_version(headers) == UNKNOWN
