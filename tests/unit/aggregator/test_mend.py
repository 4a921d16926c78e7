"""What the active writer appends again, over a topic in memory. Whose record is the newest is told by its epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import KafkaException

from tallystream.aggregator.epochs import Epochs
from tallystream.aggregator.ledger import QUERY, LedgerRow
from tallystream.aggregator.mend import Checked, Order, Watch, last_checked
from tallystream.aggregator.reading import Read
from tallystream.aggregator.versions import UNKNOWN, Version, deletion_header, deletion_version, version_of
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream.aggregator.delivering import Outgoing

FORGED = 2**62
"""An epoch that no aggregator has taken."""


def row(count: int, *, epoch: int, batch: int = 1) -> bytes:
    """Return a record as the table writes it: the writer comes last."""
    return b'{"count":%d,"epoch":%d,"batch":%d}' % (count, epoch, batch)


class Record(NamedTuple):
    """A record of the topic; `writer` is what the header of a deletion says."""

    key: bytes
    value: bytes | None
    writer: Version = UNKNOWN
    partition: int = 0


class Topic(Watch):
    """A watch of a topic in memory, by the writer of epoch 3."""

    def __init__(
        self,
        *records: Record | tuple[bytes, bytes | None],
        ask: Callable[[], int | None] = lambda: 3,
        checked: Checked = Checked({}, 0),  # noqa: B008
        deletes: bool = True,
        partitions: int = 1,
    ) -> None:
        self.logs: list[list[Record]] = [[] for _ in range(partitions)]
        self.searched = 0
        self.append(*records)
        self._topic, self._epoch, self._epochs, self._deletes = "t", 3, Epochs(ask), deletes
        self._at = {int(partition): offset for partition, offset in checked.offsets.get("t", {}).items()}
        self._order = Order(checked.epoch)
        self._opened = self._ends()

    def append(self, *records: Record | tuple[bytes, bytes | None]) -> Topic:
        """Append what somebody else writes."""
        for record in map(Record._make, map(self._whole, records)):
            self.logs[record.partition].append(record)
        return self

    @staticmethod
    def _whole(record: tuple[object, ...]) -> tuple[object, ...]:
        return (*record, *(UNKNOWN, 0)[len(record) - 2 :])

    def last(self, key: bytes, partition: int = 0) -> bytes | None:
        """Return the last record of a key."""
        return [record.value for record in self.logs[partition] if record.key == key][-1]

    def _ends(self) -> dict[int, int]:
        return {partition: len(log) for partition, log in enumerate(self.logs)}

    def _read(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Read]:
        for partition, start in starts.items():
            for offset, record in enumerate(self.logs[partition][start : ends[partition]], start):
                self.searched += 1
                yield Read(record.key, record.value, offset, partition, record.writer)

    def _append(self, records: list[Outgoing]) -> None:
        for record in records:
            self.append(Record(record.key, record.value, deletion_version(record.headers), record.partition))


def test_a_record_of_an_epoch_that_nobody_has_taken_is_followed_by_the_newest_again() -> None:
    """Ours, where we have written the key, and a deletion: the rest of the topic is not read for that."""
    topic = Topic(*[(b"a", row(1, epoch=1))] * 50)
    topic.look()
    topic.append((b"a", row(2, epoch=3)), Record(b"b", None, (3, 1)))
    topic.append((b"a", row(9, epoch=FORGED)), (b"b", row(9, epoch=FORGED)), (b"a", row(3, epoch=3, batch=2)))
    topic.append((b"a", row(8, epoch=FORGED)))
    topic.searched = 0
    assert topic.look() == 2
    assert (topic.last(b"a"), topic.logs[0][-1]) == (row(3, epoch=3, batch=2), Record(b"b", None, (3, 1)))
    assert topic.look() == 0
    assert topic.searched < 50


def test_the_newest_of_a_key_that_we_have_not_written_is_looked_for_in_the_whole_topic() -> None:
    """It is the last record of a writer that nobody had replaced by then, and appended under our epoch.

    With its own it would come after ours, and readers would leave it out.
    """
    topic = Topic(
        (b"a", row(1, epoch=1)),
        (b"b", row(1, epoch=2)),
        (b"a", row(7, epoch=1, batch=9)),  # of a writer that was replaced
        (b"a", row(8, epoch=FORGED)),
        (b"a", b"no row"),
    )
    topic.append((b"a", row(9, epoch=FORGED)), (b"unknown", row(9, epoch=FORGED)))
    assert topic.look() == 2
    assert topic.last(b"a") == b'{"count":1,"epoch":3}'
    assert topic.last(b"unknown") == row(9, epoch=FORGED)
    assert topic.look() == 0


def test_what_came_before_our_start_is_repaired_as_far_as_nobody_has_looked() -> None:
    """The writer of epoch 2 had looked up to its own first record; one of epoch 1 wrote while it was restarted."""
    before = ((b"a", row(12, epoch=1)), (b"a", row(20, epoch=2)), (b"a", row(12, epoch=1)))
    topic = Topic(*before, checked=Checked({"t": {"0": 2}}, 2))
    assert topic.look() == 1
    assert topic.last(b"a") == b'{"count":20,"epoch":3}'
    assert topic.checked == {"0": 3}
    assert (topic.look(), topic.checked) == (0, {"0": 4})


def test_what_comes_after_a_second_takeover_is_repaired_from_before_it() -> None:
    """A stopped writer of epoch 1 goes on when that of epoch 2 has been replaced by us, and we never wrote the key."""
    topic = Topic((b"a", row(12, epoch=1)), (b"a", row(20, epoch=2)), checked=Checked({"t": {"0": 2}}, 2))
    assert topic.look() == 0
    topic.append((b"a", row(12, epoch=1)))
    assert topic.look() == 1
    assert topic.last(b"a") == b'{"count":20,"epoch":3}'


def test_a_late_deletion_of_a_replaced_writer_is_followed_by_the_row_again() -> None:
    """So is one that names no writer. A row that came after the key's deletion is the newest."""
    topic = Topic(
        (b"a", row(7, epoch=2)), Record(b"a", None, (2, 2)), (b"a", row(107, epoch=2, batch=3)), (b"b", row(1, epoch=2))
    )
    assert topic.look() == 0
    topic.append(Record(b"a", None, (1, 2)), (b"b", None))
    assert topic.look() == 2
    assert (topic.last(b"a"), topic.last(b"b")) == (b'{"count":107,"epoch":3}', b'{"count":1,"epoch":3}')


def test_a_row_that_comes_back_after_its_deletion_is_deleted_again() -> None:
    """With the deletion's own writer, or with ours where the broker has removed the deletion; a sum is left alone."""
    topic = Topic((b"a", row(7, epoch=1)), (b"b", row(1, epoch=2)), Record(b"a", None, (3, 4)))
    assert topic.look() == 0
    topic.append((b"a", row(7, epoch=1)), (b"gone", row(7, epoch=1)))
    assert topic.look() == 2
    assert set(topic.logs[0][-2:]) == {Record(b"a", None, (3, 4)), Record(b"gone", None, (3, 0))}
    assert topic.look() == 0
    sums = Topic((b"b", row(1, epoch=2)), deletes=False).append((b"gone", row(7, epoch=1)))
    assert sums.look() == 1
    assert sums.last(b"gone") == row(7, epoch=1)


def test_each_partition_is_repaired_by_its_own_records() -> None:
    """A record is stale where a higher epoch comes before it in its own partition; its key's newest is there, too."""
    topic = Topic(Record(b"a", row(5, epoch=2), partition=1), partitions=2)
    topic.append(Record(b"b", row(1, epoch=2), partition=0), Record(b"a", row(4, epoch=1), partition=1))
    assert topic.look() == 1
    assert (topic.last(b"a", 1), topic.last(b"b", 0)) == (b'{"count":5,"epoch":3}', row(1, epoch=2))


def test_a_successors_records_are_left_alone() -> None:
    """An aggregator that has taken a higher epoch than ours is no forger: the lease ends us soon."""
    topic = Topic(ask=lambda: 4).append((b"a", row(1, epoch=3)), (b"a", row(2, epoch=4)), (b"b", row(3, epoch=5)))
    assert topic.look() == 1
    assert topic.logs[0][-1].value == row(3, epoch=5)


def test_a_ledger_that_cannot_be_read_is_asked_again_at_the_next_look() -> None:
    """The error is the one that the caller passes over, and the same records are looked at again."""
    answers: list[int] = []

    def ask() -> int:
        if not answers:
            raise TallystreamError("the ledger's end was not reached in time")
        return answers[0]

    topic = Topic(ask=ask).append((b"a", row(1, epoch=3)), (b"a", row(9, epoch=FORGED)))
    with pytest.raises(KafkaException, match="not reached in time"):
        topic.look()
    assert topic.checked == {}
    answers.append(3)
    assert topic.look() == 1
    assert topic.last(b"a") == row(1, epoch=3)


def test_where_the_writers_before_have_looked_is_in_the_ledger() -> None:
    """The last row that says so counts; rows of other queries say nothing; without one all is looked at."""
    rows = [
        LedgerRow(kind="batch", query=QUERY, epoch=1, batch=1, ts=1, checked={"t": {"0": 4}}),
        LedgerRow(kind="batch", query=QUERY, epoch=2, batch=2, ts=2, checked={"t": {"0": 7}}),
        LedgerRow(kind="batch", query=QUERY, epoch=2, batch=3, ts=3),
        LedgerRow(kind="opened", query="other", epoch=9, ts=4, checked={"t": {"0": 9}}),
    ]
    assert last_checked(rows) == Checked({"t": {"0": 7}}, 2)
    assert last_checked([]) == Checked({}, 0)


def test_the_writer_of_a_record_is_read_from_its_end_or_its_header() -> None:
    """Whatever names and values stand before it; a record without one has none."""
    assert version_of(b'{"name":"\\"epoch\\":9}","epoch":12,"batch":345}') == (12, 345)
    assert version_of(b'{"epoch":12}') == (12, 0)
    assert version_of(b'{"name":"x"}') is None
    assert deletion_version([("other", b"[1,2]"), ("writer", deletion_header((3, 17)))]) == (3, 17)
    for headers in (None, [], [("writer", b"[3]")], [("writer", None)], [("writer", b"[3,-1]")]):
        assert deletion_version(headers) == UNKNOWN
