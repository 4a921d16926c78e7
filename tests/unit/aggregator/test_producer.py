"""Records that are appended: they count as written when the broker has acknowledged every one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tallystream_aggregator.jobs.aggregate import wake_up
from tallystream_aggregator.kafka import clients, ledger
from tallystream_aggregator.kafka.ledger import LedgerRow, LedgerWriter
from tallystream_aggregator.shipping.dead_letters import RejectedPoints
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_aggregator.table.shards import shard_of

if TYPE_CHECKING:
    from collections.abc import Callable

ROW = LedgerRow(kind="opened", query=ledger.QUERY, epoch=1, ts=1)
TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)
REFUSED = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


class Silent:
    """A producer whose broker says nothing about `left` of the records, and `reports` of each of the others."""

    def __init__(self, _options: object = None, *, left: int = 1, reports: KafkaError | None = None) -> None:
        self._left, self._reports = left, reports
        self.produced: list[tuple[Any, ...]] = []
        self._waiting: list[Callable[[object, object], None]] = []
        self.full = 0

    def produce(self, topic: str, *, on_delivery: Callable[[object, object], None], **record: Any) -> None:
        """Take a record, unless the queue is full."""
        if self.full:
            raise BufferError("Local: Queue full")
        self.produced.append((topic, record.get("partition", -1), record["key"], record["value"]))
        self._waiting.append(on_delivery)

    def poll(self, _timeout: float) -> int:
        """Make room."""
        self.full -= 1
        return 0

    def flush(self, _timeout: float) -> int:
        """Report what there is to report, and return how many records are still in the queue."""
        told = len(self._waiting) - self._left
        for report in self._waiting[: max(0, told)]:
            report(self._reports, None)
        return self._left


WRITERS = {
    "ledger": lambda: LedgerWriter("t", {}, timeout=0.1).write([ROW]),
    "wake": lambda: wake_up.wake("t", 3, [0], {}, timeout=0.1),
}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Return a function that writes one record."""
    return WRITERS[request.param]


def test_a_record_that_the_broker_has_not_acknowledged_is_not_written(
    write: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though no delivery report says so: the queue still has it when the time is up."""
    monkeypatch.setattr(clients, "producer", Silent)
    with pytest.raises(KafkaException, match="1 of 1 records"):
        write()


def test_a_record_that_the_broker_refuses_is_not_written(
    write: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its delivery report says why."""
    monkeypatch.setattr(clients, "producer", lambda options: Silent(options, left=0, reports=REFUSED))
    with pytest.raises(KafkaException) as raised:
        write()
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_full_queue_is_waited_for(write: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """It has room again when the broker has taken some of it."""
    made: list[Silent] = []

    def make(options: object) -> Silent:
        made.append(Silent(options, left=0))
        made[-1].full = 2
        return made[-1]

    monkeypatch.setattr(clients, "producer", make)
    write()
    assert len(made[-1].produced) == 1


def test_each_shard_that_is_woken_gets_a_tombstone_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the one partition that is named, and none of the other shards gets one."""
    producer = Silent(left=0)
    monkeypatch.setattr(clients, "producer", lambda _options: producer)
    wake_up.wake("t", 3, [0, 2], {}, of=4, timeout=0.1)
    assert [(topic, partition, value) for topic, partition, _, value in producer.produced] == [("t", 3, None)] * 2
    assert [shard_of(key, 4) for _, _, key, _ in producer.produced] == [0, 2]


@pytest.mark.parametrize("producer", [Silent(), Silent(left=0, reports=TIMED_OUT)], ids=["silent", "timed out"])
def test_a_dead_letter_that_is_not_acknowledged_is_sent_again_later(
    producer: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipper waits as for its store."""
    monkeypatch.setattr(clients, "producer", lambda _options: producer)
    with pytest.raises(SinkUnavailableError, match="metrics-dead"):
        RejectedPoints("metrics-dead", {}, "local:x", timeout=0.1).send([(Point("n", {}, {"count": 1}, 0), "why")])
