"""Publishes a load to a topic, as fast as possible or at a rate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.aggregator.load import Fleet, UpdateSlice, value_prefixes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

MAX_WAIT_S = 30.0


class LoadError(Exception):
    """The broker does not have all published records."""


def admin(bootstrap_servers: str) -> AdminClient:
    """Return an admin client that logs nothing when the broker ends."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})


def preload(bootstrap_servers: str, topic: str, records: Iterable[tuple[bytes, bytes]]) -> int:
    """Append the records to a topic with one partition, in order. Return how many records it has then.

    Raises:
        LoadError: the broker does not have all of them.
    """
    producer = producer_of(bootstrap_servers, {"linger.ms": 20, "batch.size": 131072})
    had = end_of(bootstrap_servers, topic)
    produce, poll, sent = producer.produce, producer.poll, 0
    for key, value in records:
        while True:
            try:
                produce(topic, value, key, 0)
                break
            except BufferError:
                poll(0.05)
        sent += 1
    producer.flush(120)
    has = end_of(bootstrap_servers, topic)
    if has - had != sent:
        raise LoadError(f"{topic} has {has - had:,} records of {sent:,}")
    return has


class Sent:
    """When each update of a live load was sent, in epoch seconds, and how late the sender was at worst."""

    def __init__(self, updates: int) -> None:
        self.times: NDArray[np.float64] = np.zeros(updates)
        self.worst_lag_s = 0.0


def send_live(bootstrap_servers: str, topic: str, fleet: Fleet, updates: UpdateSlice, *, rate: float) -> Sent:
    """Send one record for each update, `rate` a second. Return when each was sent.

    Raises:
        LoadError: the broker does not have all of them.
    """
    producer = producer_of(bootstrap_servers, {"linger.ms": 0})
    produce, poll = producer.produce, producer.poll
    sent, prefixes, metrics, keys = Sent(len(updates.readings)), value_prefixes(fleet), fleet.metrics, fleet.keys
    readings, times = updates.readings.tolist(), sent.times
    had = end_of(bootstrap_servers, topic)
    total, done, began = len(readings), 0, time.perf_counter()
    while done < total:
        passed = time.perf_counter() - began
        due = min(total, int(passed * rate))
        if done < due:
            sent.worst_lag_s = max(sent.worst_lag_s, passed - (done + 1) / rate)
        for at in range(done, due):
            number, now = updates.first + at, time.time()
            value = b'%b%d,"ts":%d}' % (prefixes[number % metrics], readings[at], int(now * 1000))
            produce(topic, value, keys[number // metrics % fleet.instances], 0)
            times[at] = now
        done = due
        poll(0)
        time.sleep(0.001)
    producer.flush(60)
    if end_of(bootstrap_servers, topic) - had < total:
        raise LoadError(f"{topic} lacks some of the {total:,} records sent")
    return sent


def producer_of(bootstrap_servers: str, options: dict[str, Any]) -> Producer:
    """Return an idempotent producer with a buffer for a million records. `options` are options of librdkafka."""
    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "log_level": 2,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 512 * 1024,
            **options,
        }
    )


def end_of(bootstrap_servers: str, topic: str) -> int:
    """Return the end offset of the topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "bench", "enable.auto.commit": False, "log_level": 2}
    )
    try:
        until = time.monotonic() + MAX_WAIT_S
        while True:
            try:
                end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
            except KafkaException:  # a new topic may have no leader yet
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                return end
    finally:
        consumer.close()
