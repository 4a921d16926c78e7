"""The source of the demonstration in containers: flights into their topic at a steady rate, until it is stopped.

python -m tallystream_cli.demo.generator --bootstrap-servers HOST:PORT --rate 200
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from tallystream_aggregator.shutdown import StopRequest
from tallystream_cli.demo import dataset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.signals import SignalSafeEvent

STEP_S = 0.5


def generate(
    bootstrap_servers: str,
    rate: float,
    events: Sequence[dataset.Event],
    stop: SignalSafeEvent,
    ready: Path | None = None,
) -> int:
    """Send `rate` events a second, from the first again after the last, until `stop` is set; return how many.

    The file `ready` is made when the first events are there: their consumers may start then.

    Delivery: as `flights.send`, exactly once.

    Raises:
        SendError: some did not reach the broker.
        KafkaException: the topic can't be made.
    """
    try:
        dataset.create_topic(bootstrap_servers)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    step, at, sent = max(1, round(rate * STEP_S)), 0, 0
    while not stop.is_set():
        chunk = events[at : at + step]
        dataset.send(bootstrap_servers, chunk, len(chunk))
        sent += len(chunk)
        if ready is not None:
            ready.touch()
        at = at + step if at + step < len(events) else 0
        stop.wait(len(chunk) / rate)
    return sent


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m tallystream_cli.demo.generator", description="Send flights.")
    made.add_argument("--bootstrap-servers", required=True, help="the brokers, host:port,…")
    made.add_argument("--rate", type=_rate, default=200.0, help="events per second (%(default)s)")
    made.add_argument("--ready-file", type=Path, help="a file that is created when the first events are sent")
    return made


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate <= 100_000:
        raise argparse.ArgumentTypeError(f"{text} can't be used; give events per second, above 0 and up to 100000")
    return rate


def main() -> int:
    """Send until SIGTERM or SIGINT, then return 0."""
    options = parser().parse_args()
    stop = StopRequest().install()
    sent = generate(options.bootstrap_servers, options.rate, dataset.read_events(), stop, options.ready_file)
    sys.stderr.write(f"feed: {sent:,} flights are sent\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
