"""What the active writer appends again, over a topic in memory. Whose record is the newest is told by its epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from tallystream.aggregator.epochs import Epochs
from tallystream.aggregator.mend import Watch
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FORGED = 2**62
"""An epoch that no aggregator has taken."""


def row(count: int, *, epoch: int, batch: int = 1) -> bytes:
    """Return a record as the table writes it: the writer comes last."""
    return b'{"count":%d,"epoch":%d,"batch":%d}' % (count, epoch, batch)


class Topic(Watch):
    """A watch of a topic in memory, by the writer of epoch 3, from the records that are there when it begins on."""

    def __init__(self, *records: tuple[bytes, bytes | None], ask: Callable[[], int | None] = lambda: 3) -> None:
        self.records = list(records)
        self.read_from: list[int] = []
        self._topic, self._epoch, self._epochs = "t", 3, Epochs(ask)
        self._begin = self._at = len(records)

    def append(self, *records: tuple[bytes, bytes | None]) -> Topic:
        """Append what somebody else writes."""
        self.records += records
        return self

    def last(self, key: bytes) -> bytes | None:
        """Return the last record of a key."""
        return [value for known, value in self.records if known == key][-1]

    def _end(self) -> int:
        return len(self.records)

    def _read(self, begin: int) -> Iterator[tuple[bytes, bytes | None]]:
        self.read_from.append(begin)
        self._at = len(self.records)
        yield from list(self.records)[begin:]

    def _append(self, records: Mapping[bytes, bytes | None]) -> None:
        self.records += records.items()


def test_a_record_of_an_epoch_that_nobody_has_taken_is_followed_by_the_newest_again() -> None:
    """Ours, where we have written the key, and a deletion: the rest of the topic is not read for that."""
    topic = Topic((b"a", row(1, epoch=1))).append((b"a", row(2, epoch=3)), (b"b", None))
    topic.append((b"a", row(9, epoch=FORGED)), (b"b", row(9, epoch=FORGED)), (b"a", row(3, epoch=3, batch=2)))
    topic.append((b"a", row(8, epoch=FORGED)))
    assert topic.look() == 2
    assert (topic.last(b"a"), topic.last(b"b")) == (row(3, epoch=3, batch=2), None)
    assert topic.look() == 0
    assert min(topic.read_from) == 1


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


def test_a_successors_records_are_left_alone() -> None:
    """An aggregator that has taken a higher epoch than ours is no forger: the lease ends us soon."""
    topic = Topic(ask=lambda: 4).append((b"a", row(1, epoch=3)), (b"a", row(2, epoch=4)), (b"b", row(3, epoch=5)))
    assert topic.look() == 1
    assert topic.records[-1] == (b"b", row(3, epoch=5))


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
    answers.append(3)
    assert topic.look() == 1
    assert topic.last(b"a") == row(1, epoch=3)
