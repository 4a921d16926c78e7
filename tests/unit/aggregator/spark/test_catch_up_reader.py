"""The reader of a range of offsets in catch-up, with the messages of a broker in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.spark.catch_up.reader import LostRecordsError, Reading, read_range
from tallystream_aggregator.spark.catch_up.splits import Range

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition


class Broker:
    """A consumer that returns `answers` one by one, then nothing. The leader's end is `end`."""

    def __init__(self, end: int, answers: tuple[list[Any], ...]) -> None:
        self._end, self._answers = end, iter(answers)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Begin."""

    def consume(self, num_messages: int, timeout: float) -> list[Any]:  # noqa: ARG002
        """Return the next messages."""
        return next(self._answers, [])

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:  # noqa: ARG002
        """Return the offsets that the leader has."""
        return 0, self._end

    def close(self) -> None:
        """Do nothing."""


def _message(offset: int, code: int | None = None) -> Any:
    error = None if code is None else KafkaError(code)
    fields = {"error": error, "offset": offset, "key": b"k", "value": b"v", "timestamp": (1, 0)}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in fields.items()})


def _end(offset: int) -> Any:
    return _message(offset, KafkaError._PARTITION_EOF)


@pytest.fixture(params=[False, True], ids=["fail", "continue"])
def skip_lost(request: pytest.FixtureRequest) -> bool:
    """Return the setting --on-data-loss."""
    return bool(request.param)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that reads offsets 0 to 3 from a broker, and returns the offsets of the records."""

    def offsets(end: int, *answers: list[Any], skip_lost: bool) -> list[int]:
        monkeypatch.setattr(clients, "consumer", lambda _: Broker(end, answers))
        reading = Reading({}, "tests", max_wait_s=0, skip_lost=skip_lost)
        return [row[0] for rows in read_range(reading, Range("metrics", 0, 0, 4)) for row in rows]

    return offsets


def test_records_that_a_follower_does_not_have_yet_are_read(read: Any, skip_lost: bool) -> None:
    """They come after the follower's end, at once or later. They are neither skipped nor reported as deleted."""
    answers = [_message(0), _end(1), _message(1)], [_end(2)], [_message(2), _message(3), _message(4)]
    assert read(9, *answers, skip_lost=skip_lost) == [0, 1, 2, 3]


def test_a_follower_that_stays_behind_is_an_error(read: Any, skip_lost: bool) -> None:
    """The leader has the records, so they are not lost."""
    with pytest.raises(TallystreamError, match=r"partition 0: nothing was read for 0 s, with offsets 1 to 3 to come"):
        read(9, [_message(0), _end(1)], skip_lost=skip_lost)


def test_a_range_ends_at_the_end_of_the_partition(read: Any, skip_lost: bool) -> None:
    """Its last records are those of an aborted transaction, which the consumer may not return."""
    assert read(4, [_message(0), _end(4)], skip_lost=skip_lost) == [0]


def test_a_partition_that_ends_earlier_lacks_records(read: Any) -> None:
    """The leader says so, too. Such records are an error or are skipped; those before its end are read."""
    answers = [_message(0), _end(1)], [_message(1)], [_end(2)]
    with pytest.raises(LostRecordsError, match=r"topic metrics, partition 0, ends at 2, before 4"):
        read(2, *answers, skip_lost=False)
    assert read(2, *answers, skip_lost=True) == [0, 1]


def test_deleted_records_are_an_error(read: Any) -> None:
    """The broker rejects the offset."""
    with pytest.raises(LostRecordsError, match="has no offset 1 any more"):
        read(9, [_message(0), _message(1, KafkaError._AUTO_OFFSET_RESET)], skip_lost=False)
