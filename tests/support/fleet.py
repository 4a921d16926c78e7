"""Instances that keep a journal of what the broker acknowledged: an oracle that does not look at the topic.

A replay of the topic knows nothing of a good record that the aggregator refused and calls poison with it; the journal
knows what was meant as what. Records are written by the json module, not by the product's encoder.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
HOUR_MS = 3_600_000
NAME = "records.processed"
POISON = (b"{", b"\xff\xfe", b"[]", b'{"v":2}', b'{"name":"x","value":-1}', b'{"v":1,"metrics":[]}', b"null")


class Entry(NamedTuple):
    """One record that is meant to be taken; `counted` None says that it is a tombstone, which has no life either."""

    instance: str
    life: str
    part: int
    seq: int
    counted: int | None


@dataclass
class Journal:
    """What the broker acknowledged, by (partition, offset); `failed` are the records that it did not."""

    good: dict[tuple[int, int], Entry] = field(default_factory=dict)
    poison: set[tuple[int, int]] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)

    def totals(self) -> dict[str, int]:
        """Return the sum by part: of each life the count with the highest seq, since the last tombstone."""
        newest: dict[tuple[str, str, int], int] = {}
        counts: dict[tuple[str, str, int], int] = {}
        for _, entry in sorted(self.good.items()):
            row = (entry.instance, entry.life, entry.part)
            if entry.counted is None:
                counts = {other: count for other, count in counts.items() if other[0] != entry.instance}
            elif entry.seq > newest.get(row, 0):
                newest[row], counts[row] = entry.seq, entry.counted
        totals = Counter({str(part): 0 for _, _, part in newest})
        for (_, _, part), count in counts.items():
            totals[str(part)] += count
        return dict(totals)


@dataclass
class Life:
    """A life of an instance: what it has counted and sent, by part."""

    name: str
    skew_ms: int
    counts: dict[int, int]
    seqs: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Shares:
    """How often things happen, as shares of all records."""

    poison: float = 0.01
    duplicated: float = 0.1
    reordered: float = 0.1
    tombstone: float = 0.005
    restart: float = 0.02
    worker: float = 0.02


class Fleet:
    """Twenty instances of `app`, seeded; every second one has its registry split over two records.

    They are restarted under the same ID, have several lives at once, clocks that are off by an hour and step back from
    life to life; records are sent twice, late, and in between poison, some of it one NaN beside good counters.
    """

    def __init__(self, bootstrap_servers: str, topic: str, seed: int, *, app: str = "orders", shares: Shares) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "log_level": 0})
        self._topic = topic
        self._random = random.Random(seed)
        self._shares = shares
        self.app = app
        self.journal = Journal()
        self._lives = {f"{app}-{number}": [self._life(number % 2 + 1)] for number in range(20)}
        self._held: list[tuple[bytes, bytes, Entry]] = []

    def publish(self, records: int) -> None:
        """Publish at least that many records and return when the broker has acknowledged them."""
        for _ in range(records):
            self._step()
        self._release()
        assert self._producer.flush(240) == 0
        assert not self.journal.failed

    @contextmanager
    def publishing(self, records: int = 5, every_s: float = 0.05) -> Iterator[None]:
        """Publish in the background, that many records at a time, until the block ends; then all are acknowledged."""
        enough = threading.Event()
        failures: list[BaseException] = []

        def resume() -> None:
            try:
                while not enough.wait(every_s):
                    self.publish(records)
            except BaseException as error:  # noqa: BLE001 (handed to the thread that waits)
                failures.append(error)

        thread = threading.Thread(target=resume)
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()
        if failures:
            raise failures[0]

    def _step(self) -> None:
        chance, instance = self._random.random(), self._random.choice(list(self._lives))
        key, lives, shares = instance.encode(), self._lives[instance], self._shares
        if chance < shares.poison / 2:
            self._produce(key, self._random.choice(POISON), None)
            return
        chance -= shares.poison
        if 0 <= chance < shares.tombstone:
            self._produce(key, None, Entry(instance, "", 0, 0, None))
            return
        chance -= shares.tombstone
        if 0 <= chance < shares.restart:
            lives[-1] = self._life(len(lives[-1].counts))
        elif 0 <= chance - shares.restart < shares.worker and len(lives) < 3:
            lives.append(self._life(len(lives[-1].counts)))
        self._snapshot(instance, self._random.choice(lives), nan=chance < -shares.tombstone)

    def _snapshot(self, instance: str, life: Life, *, nan: bool) -> None:
        part = self._random.choice(list(life.counts))
        life.counts[part] += self._random.randrange(1000)
        life.seqs[part] += 1
        entry = Entry(instance, life.name, part, life.seqs[part], life.counts[part])
        record = (instance.encode(), self._value(entry, life.skew_ms, nan=nan), entry)
        if nan:  # a late or repeated one would be ignored, and no letter with it
            self._produce(*record, poison=True)
            return
        if self._random.random() < self._shares.reordered:
            self._held.append(record)
            return
        self._produce(*record)
        if self._random.random() < self._shares.duplicated:
            self._produce(*record)
        if len(self._held) > 5:
            self._release()

    def _value(self, entry: Entry, skew_ms: int, *, nan: bool) -> bytes:
        metrics: list[dict[str, Any]] = [
            {"type": "counter", "name": NAME, "tags": {"part": str(entry.part)}, "count": entry.counted},
            {"type": "meter", "name": f"calls.{entry.part}", "count": entry.counted, "m1_rate": 2.0},
        ]
        gauge = {"type": "gauge", "name": f"queue.{entry.part}", "value": float("nan") if nan else 0.5}
        now_ms = int(time.time() * 1000) + skew_ms
        head = {"v": 1, "app": self.app, "life": entry.life, "part": entry.part, "seq": entry.seq, "ts": now_ms}
        return json.dumps({**head, "every_ms": HOUR_MS, "final": False, "metrics": [gauge, *metrics]}).encode()

    def _release(self) -> None:
        while self._held:
            self._produce(*self._held.pop(self._random.randrange(len(self._held))))

    def _produce(self, key: bytes, value: bytes | None, entry: Entry | None, *, poison: bool = False) -> None:
        def acknowledged(error: object, message: Any) -> None:
            if error is not None:
                self.journal.failed.append(str(error))
                return
            place = (message.partition(), message.offset())
            if entry is None or poison:
                self.journal.poison.add(place)
            if entry is not None:
                self.journal.good[place] = entry

        self._producer.produce(self._topic, key=key, value=value, on_delivery=acknowledged)
        self._producer.poll(0)

    def _life(self, parts: int) -> Life:
        skew_ms = self._random.choice((-HOUR_MS, 0, HOUR_MS))
        now_ms = int(time.time() * 1000) + skew_ms
        head = "".join(DIGITS[now_ms >> shift & 31] for shift in range(45, -1, -5))
        name = head + "".join(self._random.choices(DIGITS, k=16))
        return Life(name, skew_ms, dict.fromkeys(range(parts), 0))
