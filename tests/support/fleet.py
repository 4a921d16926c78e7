"""Instances of an application that publish metrics, with a journal of the records that the broker acknowledged.

The journal is a reference that does not depend on the topic. A replay of the topic may share a wrong rule with the
aggregator, and both would refuse the same valid record. The journal has the intended content of each record. Records
are encoded by the json module, not by the product's encoder.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Producer

from support.history import Line, Truth
from tallystream.ulid import new_ulid

HOUR_MS = 3_600_000
NAME = "records.processed"
"""The counter whose counts are in the journal."""

MALFORMED = (b"{", b"\xff\xfe", b"[]", b'{"v":2}', b'{"name":"x","value":-1}', b'{"v":1,"metrics":[]}', b"null")


class Entry(NamedTuple):
    """One valid record. A tombstone has no life, part or counter."""

    instance: str
    life: str
    part: int
    seq: int
    counter: int | None

    def line(self) -> Line:
        """Return what support/history.py reads of it."""
        if self.counter is None:
            return {"instance": self.instance}
        counted = {"life": self.life, "part": self.part, "sum": str(self.part), "count": self.counter}
        return {"instance": self.instance, **counted}


@dataclass
class Journal:
    """The acknowledged records by (partition, offset), and the errors of those that were not acknowledged.

    The valid ones are lines of support/history.py.
    """

    valid: dict[tuple[int, int], Line] = field(default_factory=dict)
    malformed: set[tuple[int, int]] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    def totals(self) -> dict[str, int]:
        """Return the sum of each part: the highest counts of all lives since the last tombstone."""
        truth = Truth(list(self.valid.values()))
        truth.advance()
        return dict(truth.sums)


@dataclass
class Life:
    """A life of an instance: its counts and its last seq, by part."""

    name: str
    skew_ms: int
    counts: dict[int, int]
    seqs: Counter[int] = field(default_factory=Counter)


MALFORMED_SHARE, DUPLICATED, REORDERED, TOMBSTONE, RESTART, WORKER = 0.01, 0.1, 0.1, 0.005, 0.02, 0.02
"""The share of each kind of record among all records."""


class Fleet:
    """Twenty instances of `app` with a fixed seed. The registry of every second one is split into two parts.

    They restart with the same ID, have several lives at the same time, and clocks that are wrong by an hour. Some
    records are sent twice, late, or between malformed records, of which some have a NaN beside valid counters.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, seed: int, *, app: str = "orders", tombstones: bool = True
    ) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "log_level": 0})
        self._topic = topic
        self._random = random.Random(seed)
        self._tombstone = TOMBSTONE * tombstones
        self.app = app
        self.journal = Journal()
        self._lives = {f"{app}-{number}": [self._life(number % 2 + 1)] for number in range(20)}
        self._late: list[tuple[bytes, bytes, Entry]] = []

    def publish(self, records: int) -> None:
        """Publish at least that many records and return when the broker has acknowledged them."""
        for _ in range(records):
            self._step()
        self._release()
        assert self._producer.flush(240) == 0
        assert not self.journal.errors

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Publish in the background, a few records at a time. At the end of the block all are acknowledged."""
        stopped = threading.Event()
        failures: list[BaseException] = []

        def publish_until_stopped() -> None:
            try:
                while not stopped.wait(0.05):
                    self.publish(5)
            except BaseException as error:  # noqa: BLE001 (raised again in the waiting thread)
                failures.append(error)

        thread = threading.Thread(target=publish_until_stopped)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()
        if failures:
            raise failures[0]

    def _step(self) -> None:
        chance, instance = self._random.random(), self._random.choice(list(self._lives))
        key, lives = instance.encode(), self._lives[instance]
        if chance < MALFORMED_SHARE / 2:
            self._produce(key, self._random.choice(MALFORMED), None)
            return
        chance -= MALFORMED_SHARE
        if 0 <= chance < self._tombstone:
            self._produce(key, None, Entry(instance, "", 0, 0, None))
            return
        chance -= self._tombstone
        if 0 <= chance < RESTART:
            lives[-1] = self._life(len(lives[-1].counts))
        elif 0 <= chance - RESTART < WORKER and len(lives) < 3:
            lives.append(self._life(len(lives[-1].counts)))
        self._snapshot(instance, self._random.choice(lives), nan=chance < -self._tombstone)

    def _snapshot(self, instance: str, life: Life, *, nan: bool) -> None:
        part = self._random.choice(list(life.counts))
        life.counts[part] += self._random.randrange(1, 1000)
        life.seqs[part] += 1
        entry = Entry(instance, life.name, part, life.seqs[part], life.counts[part])
        record = (instance.encode(), self._value(entry, life.skew_ms, nan=nan), entry)
        if nan:  # sent once and without a delay: a stale record is no dead letter
            self._produce(*record, malformed=True)
            return
        if self._random.random() < REORDERED:
            self._late.append(record)
            return
        self._produce(*record)
        if self._random.random() < DUPLICATED:
            self._produce(*record)
        if len(self._late) > 5:
            self._release()

    def _value(self, entry: Entry, skew_ms: int, *, nan: bool) -> bytes:
        assert entry.counter is not None
        count, tags = entry.counter, {"part": str(entry.part)}
        metrics: list[dict[str, Any]] = [
            {"type": "gauge", "name": "queue", "tags": tags, "value": float("nan") if nan else count % 7 + 0.5},
            {"type": "counter", "name": NAME, "tags": tags, "count": count},
            {"type": "meter", "name": "calls", "tags": tags, "count": count, "m1_rate": 2.0},
            {
                "type": "histogram",
                "name": "size",
                "tags": tags,
                "count": count,
                "sum": 0.5 * count,
                "min": 0.5,
                "max": 0.5,
            },
        ]
        now_ms = int(time.time() * 1000) + skew_ms
        head = {"v": 1, "app": self.app, "life": entry.life, "part": entry.part, "seq": entry.seq, "ts": now_ms}
        return json.dumps({**head, "every_ms": HOUR_MS, "final": False, "metrics": metrics}).encode()

    def _release(self) -> None:
        while self._late:
            self._produce(*self._late.pop(self._random.randrange(len(self._late))))

    def _produce(self, key: bytes, value: bytes | None, entry: Entry | None, *, malformed: bool = False) -> None:
        def acknowledged(error: object, message: Any) -> None:
            if error is not None:
                self.journal.errors.append(str(error))
                return
            position = (message.partition(), message.offset())
            if entry is None or malformed:
                self.journal.malformed.add(position)
            if entry is not None:
                place = {"at": time.time(), "partition": position[0], "offset": position[1]}
                self.journal.valid[position] = place | entry.line()

        self._producer.produce(self._topic, key=key, value=value, on_delivery=acknowledged)
        self._producer.poll(0)

    def _life(self, parts: int) -> Life:
        skew_ms = self._random.choice((-HOUR_MS, 0, HOUR_MS))
        now_ms = int(time.time() * 1000) + skew_ms
        return Life(new_ulid(now_ms), skew_ms, dict.fromkeys(range(parts), 0))
