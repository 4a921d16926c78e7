"""The reader of `verify`, with the messages of a broker in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.verify import reader
from tallystream_aggregator.verify.decode import RawRecord
from tallystream_aggregator.verify.reader import newest, read_all, settled

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition


class Broker:
    """A consumer that returns these messages. The leader's end is `end`."""

    def __init__(self, end: int, messages: list[Any]) -> None:
        self._end, self._messages = end, iter(messages)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Begin."""

    def poll(self, timeout: float) -> Any:  # noqa: ARG002
        """Return the next message."""
        return next(self._messages, None)

    def consume(self, num_messages: int, timeout: float) -> list[Any]:  # noqa: ARG002
        """Return no more messages than `poll`."""
        return []

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:  # noqa: ARG002
        """Return the offsets that the leader has."""
        return 0, self._end

    def close(self) -> None:
        """Do nothing."""


def _message(offset: int, error: KafkaError | None = None) -> Any:
    fields = {"error": error, "offset": offset, "key": b"k", "value": b"v", "timestamp": (1, 0)}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in fields.items()})


def _end(offset: int) -> Any:
    return _message(offset, KafkaError(KafkaError._PARTITION_EOF))


@pytest.mark.parametrize("end", [2, 9])
def test_records_that_a_follower_does_not_have_yet_are_read(monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    """The range ends where the leader says, also if a sum claims more records than the partition has."""
    messages = [_message(0), _end(1), _message(1), _end(2)]
    monkeypatch.setattr(clients, "consumer", lambda _: Broker(2, messages))
    assert [record.offset for record in read_all({}, {"metrics:0": (0, end)})] == [0, 1]


def test_open_transactions_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader does not see what others commit after the first record of an open transaction."""
    stable = iter([3, 3, 8])
    monkeypatch.setattr(
        reader, "bounds", lambda *_, committed=True: {"metrics-dead:0": (0, next(stable) if committed else 7)}
    )
    monkeypatch.setattr(reader, "PAUSE_S", 0)
    assert settled({}, "metrics-dead") == {"metrics-dead:0": (0, 8)}
    assert next(stable, None) is None


def test_a_transaction_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its dead letters would be missing, and those of others after it."""
    monkeypatch.setattr(reader, "bounds", lambda *_, committed=True: {"metrics-dead:0": (0, 3 if committed else 7)})
    monkeypatch.setattr(reader, "PAUSE_S", 0)
    monkeypatch.setattr(reader, "MAX_WAIT_S", 0)
    with pytest.raises(TallystreamError, match=r"^metrics-dead:0: a transaction has been open for 0 s\.$"):
        settled({}, "metrics-dead")


@pytest.mark.parametrize("offset", [0, 5_000, 9_999])
def test_the_newest_record_of_a_key_is_found_wherever_it_is(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    """Markers and other records may take any number of offsets after it. The first offsets may be deleted."""
    records = [
        RawRecord(offset - 1, 0, b"k", b"old"),
        RawRecord(offset, 0, b"k", b"v"),
        RawRecord(9_999, 0, b"x", b"v"),
    ]

    def read(_: object, ranges: dict[str, tuple[int, int]]) -> list[RawRecord]:
        begin, end = ranges["metrics-table:0"]
        return [one for one in records if begin <= one.offset < end]

    monkeypatch.setattr(reader, "bounds", lambda *_: {"metrics-table:0": (offset, 10_000)})
    monkeypatch.setattr(reader, "read_all", read)
    assert newest({}, "metrics-table:0", b"k") == records[1]
    assert newest({}, "metrics-table:0", b"other") is None
    assert newest({}, "metrics-table:1", b"k") is None
