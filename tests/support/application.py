"""An application of many instances that does all that instances do, and the check that its sums are exact."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from support.kafka import Read, committed, latest_sums, read_topic
from support.oracle import expected
from support.wait import wait_until
from tallystream import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

LIFE_CHARACTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class Application:
    """Many instances of one application, seeded: publishes snapshots, duplicates, old ones again, restarts, poison."""

    def __init__(self, bootstrap_servers: str, topic: str, seed: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
        self._topic = topic
        self._random = random.Random(seed)
        self._counts = dict.fromkeys(range(20), 0)
        self._lives = {instance: self._life() for instance in self._counts}
        self._seqs = dict.fromkeys(self._counts, 0)
        self.poison = 0

    def publish(self, records: int) -> None:
        """Publish about that many records and return when the broker has them."""
        for _ in range(records):
            for key, value in self._step():
                self._producer.produce(self._topic, key=key, value=value)
        assert self._producer.flush(60) == 0

    def _step(self) -> Iterator[tuple[bytes, bytes | None]]:
        chance, instance = self._random.random(), self._random.randrange(len(self._counts))
        key = f"orders-{instance}".encode()
        if chance < 0.02:
            self.poison += 1
            yield key, self._random.choice([b"{", b"\xff\xfe", b"[]", b'{"v":2}', b'{"name":"x","value":-1}'])
            return
        if chance < 0.03:
            yield key, None
            return
        if chance < 0.06:  # a restart under the same instance ID
            self._lives[instance], self._seqs[instance], self._counts[instance] = self._life(), 0, 0
        self._counts[instance] += self._random.randrange(1000)
        self._seqs[instance] += 1
        value = self._snapshot(instance)
        yield key, value
        if chance > 0.9:  # sent twice
            yield key, value

    def _snapshot(self, instance: int) -> bytes:
        count = self._counts[instance]
        metrics: list[record.Metric] = [
            record.Counter(name="records.processed", tags={"topic": "orders"}, count=count),
            record.Gauge(name="queue", value=instance + 0.5),
            record.Meter(name="calls", count=count, m1_rate=2.0),
            record.Histogram(name="size", count=count, sum=float(count), min=0.0, max=float(instance)),
        ]
        return record.encode(
            record.Snapshot(
                app="orders",
                life=self._lives[instance],
                part=0,
                seq=self._seqs[instance],
                ts=0,
                every_ms=3_600_000,
                final=False,
                metrics=metrics,
            )
        )

    def _life(self) -> str:
        now_ms = int(time.time() * 1000)  # a life that began long ago would come too late
        head = "".join(LIFE_CHARACTERS[now_ms >> shift & 31] for shift in range(45, -1, -5))
        return head + "".join(self._random.choices(LIFE_CHARACTERS, k=16))


def assert_exact(broker: KafkaBroker, topics: Topics, earlier: Sequence[Read] = ()) -> dict[Any, Any]:
    """Wait until the group is at the ends of `metrics`, then compare every field of every sum with the oracle's.

    `earlier` are the records that were read before they were deleted.
    """
    records = [*earlier, *read_topic(broker.bootstrap_servers, topics.metrics)]
    ends: dict[int, int] = {}
    for read in records:
        ends[read.partition] = max(ends.get(read.partition, 0), read.offset + 1)
    group = topics.prefix + "tallystream-aggregator"

    def finished() -> bool:
        return all(committed(broker.bootstrap_servers, group, topics.metrics, p) >= end for p, end in ends.items())

    wait_until(finished, 300, f"the batches up to {ends} (partition: end) are finished")
    found = latest_sums(broker.bootstrap_servers, topics.agg)
    wanted = expected(records)
    wrong = {
        key: (found.get(key), wanted.get(key))
        for key in found.keys() | wanted.keys()
        if key not in found or key not in wanted or _fields(found[key], wanted[key]) != wanted[key]
    }
    assert not wrong, wrong
    return wanted


def _fields(row: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in wanted}
