"""The consumer application of the demonstration: a member of a consumer group that publishes metrics.

    python -m tallystream_cli.demo.app --bootstrap-servers HOST:PORT --instance app-1 --journal FILE

It processes flights in batches. After each batch it writes its journal, reports, and then commits. A committed event is
therefore always in the sums. An event that was reported but not committed is processed again and counted twice.
"""

from __future__ import annotations

import argparse
import sys
import time
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Message, TopicPartition

from tallystream import ConsumerProgress, KafkaReporter, MetricRegistry
from tallystream.decoding import json_decoder
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.shutdown import StopRequest
from tallystream_cli.demo import events
from tallystream_cli.demo.journal import Line, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

APP = GROUP = "flights"
PROCESSED, DELAY, BATCH, IN_FLIGHT = "flights.processed", "flights.delay", "flights.batch", "flights.in_flight"
POLL_S = 0.2


class FlightsApp:
    """An instance with its metrics, its consumer and its journal."""

    def __init__(self, options: argparse.Namespace, journal: FileIO) -> None:
        self._options = options
        self._journal = journal
        self._decode = json_decoder(events.Flight)
        self._batch = 0
        self._uncommitted: dict[int, int] = {}
        self.stop = StopRequest()
        # What an application needs to publish metrics: a registry, metrics, a reporter.
        registry = MetricRegistry(APP)
        self._progress = ConsumerProgress(registry, PROCESSED)
        self._delay = registry.histogram(DELAY)
        self._timer = registry.timer(BATCH)
        self._in_flight = registry.gauge(IN_FLIGHT)
        self._in_flight.set(0)
        self._reporter = KafkaReporter(registry, bootstrap_servers=options.bootstrap_servers, instance=options.instance)
        self._consumer = clients.consumer(
            {
                "bootstrap.servers": options.bootstrap_servers,
                "group.id": GROUP,
                "client.id": options.instance,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                # With little fetched ahead, partitions that are taken over from another instance are processed soon.
                "queued.min.messages": options.batch,
                "fetch.wait.max.ms": 50,
            }
        )

    def run(self) -> None:
        """Process until `stop` is set, then finish the batch, leave the group and send a last report."""
        self._consumer.subscribe([events.TOPIC])
        started_at, processed = time.monotonic(), 0
        with self._reporter:
            while not self.stop.is_set():
                messages = self._consumer.consume(self._options.batch, timeout=POLL_S)
                if messages:
                    self._process_batch(messages)
                    processed += len(messages)
                elif self._uncommitted:
                    self._commit()
                self._limit_rate(started_at, processed)
            self._consumer.close()

    def _process_batch(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
        self._in_flight.set(len(messages))
        with self._timer.time():
            delays = self._delays(messages)
        for delay in delays:
            self._delay.update(delay)
        self._progress.processed(messages)  # updates counter and positions together
        self._batch = time.time_ns()  # also different from those of the instance's earlier processes
        line = Line("batch", self._batch, len(delays), sum(delays), spans(messages))
        self._journal.write(line.text())
        for partition, _, end in line.spans:
            self._uncommitted[partition] = max(end, self._uncommitted.get(partition, 0))
        if not self._report():
            return
        if self._options.hold_after_report and self._options.hold_after_report.exists():
            self._journal.write(Line("hold", self._batch).text())
            self.stop.wait()
            return
        self._commit()
        self._in_flight.set(0)

    def _delays(self, messages: Iterable[Message]) -> list[int]:
        """Decode the events, and return their delays in minutes."""
        delays = (self._decode(message.value() or b"").delay for message in messages)
        return [delay for delay in delays if delay is not None]

    def _report(self) -> bool:
        while not self._reporter.report_now(timeout=10):
            if self.stop.is_set():
                return False
        self._journal.write(Line("acknowledged", self._batch).text())
        return True

    def _commit(self) -> None:
        # The offsets of a revoked partition are committed by its new owner.
        assigned = {one.partition for one in self._consumer.assignment()}
        self._uncommitted = {partition: end for partition, end in self._uncommitted.items() if partition in assigned}
        offsets = [TopicPartition(events.TOPIC, partition, end) for partition, end in self._uncommitted.items()]
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # The group is rebalancing. The next commit includes these offsets, or their new owner processes them again.
            print(f"commit rejected: {error.args[0].str()}", file=sys.stderr, flush=True)  # noqa: T201 (the log)
            return
        self._uncommitted.clear()
        self._journal.write(Line("committed", self._batch).text())

    def _limit_rate(self, started_at: float, processed: int) -> None:
        slow_until = self._options.slow_until
        if slow_until is not None and not slow_until.exists():
            self.stop.wait(max(0.0, started_at + processed / self._options.rate - time.monotonic()))


def spans(messages: Iterable[Message]) -> list[Span]:
    """Return the ranges of consecutive offsets by partition, in the order in which they were read."""
    by_partition: dict[int, list[list[int]]] = {}
    for message in messages:
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None:
            raise ValueError("the message has no partition or no offset")
        ranges = by_partition.setdefault(partition, [])
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] = offset + 1
        else:
            ranges.append([offset, offset + 1])
    return [(partition, first, end) for partition, ranges in sorted(by_partition.items()) for first, end in ranges]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tallystream_cli.demo.app", description="Process flights.")
    add: Callable[..., object] = parser.add_argument
    add("--bootstrap-servers", required=True, help="the brokers, host:port,…")
    add("--instance", required=True, help="the instance ID")
    add("--journal", required=True, type=Path, help="the file for the journal, which is appended to")
    add("--batch", type=int, default=2000, help="the maximum number of events in a batch (%(default)s)")
    add("--hold-after-report", type=Path, help="when this file exists, stop between the next report and its commit")
    add("--slow-until", type=Path, help="limit the rate to --rate until this file exists")
    add("--rate", type=float, default=5000.0, help="events per second with --slow-until (%(default)s)")
    return parser


def main() -> int:
    """Run one instance until SIGTERM or SIGINT."""
    options = parser().parse_args()
    with FileIO(options.journal, "a") as journal:
        app = FlightsApp(options, journal)
        app.stop.install()
        app.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
