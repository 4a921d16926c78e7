"""The lease, and what replaced writers append, on a real broker, without Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tallystream_aggregator import sums
from tallystream_aggregator.jobs.aggregate.repair import TopicWatch
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.lease import Lease, LeaseError
from tallystream_aggregator.kafka.ledger import Epochs
from tallystream_aggregator.versions import version_of

if TYPE_CHECKING:
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def never() -> bool:
    """No stop is asked for."""
    return False


def test_one_has_the_lease_and_the_next_one_gets_it(broker: KafkaBroker, topics: Topics) -> None:
    """The second is refused while the first lives, or stands by; when the first gives it back the second has it."""
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    first = Lease(topics.ledger, kafka, prefix=topics.prefix)
    first.join()
    assert first.wait(standby=False, stopped=never)
    second = Lease(topics.ledger, kafka, prefix=topics.prefix)
    second.join()
    now = [0.0]

    def seconds() -> float:
        now[0] += 0.3  # three times as fast as the polls that pass it
        first.check()
        return now[0]

    second._clock = seconds
    with pytest.raises(LeaseError, match="another aggregator still has it"):
        second.wait(standby=False, stopped=never)
    first.check()
    first.close()
    second._clock = time.monotonic
    assert second.wait(standby=True, stopped=never)
    second.close()


def test_a_stop_ends_the_waiting(broker: KafkaBroker, topics: Topics) -> None:
    """Who stands by and is told to stop returns without the lease."""
    lease = Lease(topics.ledger, {"bootstrap.servers": broker.bootstrap_servers}, prefix=topics.prefix)
    lease.join()
    assert not lease.wait(standby=True, stopped=lambda: True)
    lease.close()


def test_who_lost_the_lease_goes_on_until_a_higher_epoch_is_in_the_ledger(broker: KafkaBroker, topics: Topics) -> None:
    """A broker that was away takes the lease from everybody: that alone stops nobody; a successor does."""
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    lease = Lease(topics.ledger, kafka, prefix=topics.prefix, clock=iter(range(0, 1000, 10)).__next__)
    lease.set_epoch(4)
    writer = ledger.LedgerWriter(topics.ledger, kafka)
    writer.write([ledger.LedgerRow(kind="opened", query=ledger.QUERY, epoch=4, ts=1)])
    lease.check()
    writer.write([ledger.LedgerRow(kind="opened", query=ledger.QUERY, epoch=5, ts=2)])
    with pytest.raises(LeaseError, match="took over with epoch 5, ours was 4"):
        lease.check()
    lease.close()


def row(count: int, *, epoch: int, batch: int, name: str = "n") -> bytes:
    """Return a sum's value."""
    return sums.encode(
        sums.Sum(app="shop", name=name, type="counter", count=count, lives=1, ts=1, epoch=epoch, batch=batch)
    )


def test_the_keys_of_what_a_replaced_writer_appends_are_found(broker: KafkaBroker, topics: Topics) -> None:
    """Rows and deletions; also of records with an epoch that no writer has taken. Ours are not."""
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer(kafka)

    def append(*records: tuple[bytes, bytes | None], deleted_by: bytes = b"[2,9]") -> None:
        for key, value in records:
            headers = [("writer", deleted_by)] if value is None else None
            producer.produce(topics.agg, key=key, value=value, headers=headers)
        assert producer.flush(30) == 0

    append((b"before", row(1, epoch=1, batch=7)))
    watch = TopicWatch(topics.agg, kafka, Epochs(lambda: 2), epoch=2)
    assert watch.poll() == set()
    append((b"a", row(5, epoch=2, batch=8)), (b"b", row(6, epoch=2, batch=8)), (b"c", None))
    assert watch.poll() == set()
    append((b"a", row(5, epoch=1, batch=8)), (b"c", row(7, epoch=1, batch=8)), (b"b", row(8, epoch=2, batch=10)))
    assert watch.poll() == {(0, b"a"), (0, b"c")}
    append((b"a", row(1, epoch=2**62, batch=0)), (b"b", None), deleted_by=b"[1,8]")
    assert watch.poll() == {(0, b"a"), (0, b"b")}
    assert watch.poll() == set()
    watch.close()


def test_the_writer_of_a_record_is_read_from_its_end() -> None:
    """Whatever names and values stand before it; a record without one has none."""
    assert version_of(row(1, epoch=12, batch=345, name='"epoch":9,"batch":9}')) == (12, 345)
    assert version_of(row(1, epoch=12, batch=0)) == (12, 0)
    assert version_of(b'{"name":"x"}') is None
