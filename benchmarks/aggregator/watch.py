"""Reads the sums on the output topic: the newest of each metric, and the arrival time of every sum."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec
import numpy as np
from confluent_kafka import Consumer, KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class _Row(msgspec.Struct):
    """A sum of either side: ours has a `count`, that of Kafka Streams a `value`."""

    name: str
    count: int | None = None
    value: int | None = None


_decoder = msgspec.json.Decoder(_Row)


class Arrival(NamedTuple):
    """A sum that was received at `time` in epoch seconds."""

    time: float
    metric: int
    sum: int


class Watcher:
    """Reads the committed records of an output topic from its start. Sums of other metrics are ignored."""

    def __init__(self, bootstrap_servers: str, topic: str, names: Sequence[str]) -> None:
        self.sums: NDArray[np.int64] = np.zeros(len(names), np.int64)
        self.received = 0
        self._index = {name: number for number, name in enumerate(names)}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "bench",
                "enable.auto.commit": False,
                "log_level": 2,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def poll(self, timeout: float) -> Arrival | None:
        """Wait up to `timeout` seconds for a sum."""
        message = self._consumer.poll(timeout)
        if message is None:
            return None
        now, error, value = time.time(), message.error(), message.value()
        if error is not None:
            raise KafkaException(error)
        row = _decoder.decode(value or b"")
        metric, total = self._index.get(row.name), row.count if row.value is None else row.value
        if metric is None or total is None:
            return None
        self.sums[metric] = total
        self.received += 1
        return Arrival(now, metric, total)

    def matches(self, expected: NDArray[np.int64]) -> bool:
        """Return whether the newest sums equal `expected`."""
        return bool(np.array_equal(self.sums, expected))

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Recording:
    """Records every sum that a watcher receives until `stop`, in a thread of its own."""

    def __init__(self, watcher: Watcher) -> None:
        self.arrivals: list[Arrival] = []
        self._watcher, self._stop = watcher, Event()
        self._failure: Exception | None = None
        self._thread = Thread(target=self._run, name="bench-watch", daemon=True)
        self._thread.start()

    def stop(self) -> list[Arrival]:
        """Return the received sums.

        Raises:
            Exception: reading failed.
        """
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.arrivals

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                arrival = self._watcher.poll(0.1)
                if arrival is not None:
                    self.arrivals.append(arrival)
        except Exception as error:  # noqa: BLE001 (raised again by stop in the caller's thread)
            self._failure = error
