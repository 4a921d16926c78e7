"""What `verify` reads from topics: records of transactions, and the newest one of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.simulation.direct import TOPICS, Direct
from tallystream.errors import TallystreamError
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.verify import topics
from tallystream_aggregator.verify.decode import RawRecord
from tallystream_aggregator.verify.topics import newest, settled

if TYPE_CHECKING:
    from collections.abc import Iterator


class Partition:
    """A topic of one partition that ends at `end`, for a reader of committed records at each of `stable` in turn."""

    def __init__(self, name: str, end: int, stable: list[int], records: tuple[RawRecord, ...] = ()) -> None:
        self._name, self._end, self._stable, self._records = name, end, stable, records

    def bounds(self, topic: str, *, committed: bool = True) -> dict[str, tuple[int, int]]:
        """Return the bounds. The first record is the first offset."""
        first = min((one.offset for one in self._records), default=0)
        end = (self._stable.pop(0) if len(self._stable) > 1 else self._stable[0]) if committed else self._end
        return {self._name: (first, end)} if topic == self._name.partition(":")[0] else {}

    def read(self, partition: str, begin: int, end: int) -> Iterator[RawRecord]:
        """Yield the records of a range."""
        assert partition == self._name
        yield from (one for one in self._records if begin <= one.offset < end)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "PAUSE_S", 0)


def test_open_transactions_are_waited_for() -> None:
    """A reader does not see what others commit after the first record of an open transaction."""
    reader: Any = Partition("metrics-dead:0", 7, [3, 3, 8, 9])
    assert settled(reader, "metrics-dead") == {"metrics-dead:0": (0, 8)}


def test_a_transaction_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its dead letters would be missing, and those of others after it."""
    monkeypatch.setattr(topics, "MAX_WAIT_S", 0)
    reader: Any = Partition("metrics-dead:0", 7, [3])
    with pytest.raises(TallystreamError, match=r"^metrics-dead:0: a transaction has been open for 0 s\.$"):
        settled(reader, "metrics-dead")


@pytest.mark.parametrize("offset", [1, 5_000, 9_999])
def test_the_newest_record_of_a_key_is_found_wherever_it_is(offset: int) -> None:
    """Markers and other records may take any number of offsets after it. The first offsets may be deleted."""
    records = (
        RawRecord(offset - 1, 0, b"k", b"old"),
        RawRecord(offset, 0, b"k", b"v"),
        RawRecord(9_999, 0, b"x", b"v"),
    )
    reader: Any = Partition("metrics-table:0", 10_000, [10_000], records)
    assert newest(reader, "metrics-table:0", b"k") == records[1]
    assert newest(reader, "metrics-table:0", b"other") is None
    assert newest(reader, "metrics-table:1", b"k") is None
    assert newest(reader, "metrics-other:0", b"k") is None


def test_records_that_are_deleted_while_they_are_read_have_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the topic, the partition and the first of these records."""
    direct = Direct()
    place = Place(TOPICS.agg, 0)
    for value in (b"1", b"2", b"3"):
        direct.cluster.append(place, b"k", value)
    direct.cluster.partition(place).delete_before(2)
    monkeypatch.setattr(topics, "KafkaBroker", lambda *_: direct.broker)
    with pytest.raises(TallystreamError, match=r"-agg, partition 0: the records from offset 0 .* Run verify again"):
        list(topics.TopicReader({}).read(str(place), 0, 3))
