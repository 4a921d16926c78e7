"""The consumer application of the demonstration: a plain consumer-group process that embeds the reporter.

    python -m tallystream_cli.demo.app --bootstrap-servers HOST:PORT --instance app-1 --journal FILE

It processes flights in batches; after each it writes its journal, reports, and only then commits. So a committed event
is always in the sums; one that was reported and not committed is processed again, and the sums say so.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Message, TopicPartition

from tallystream import ConsumerProgress, KafkaReporter, MetricRegistry
from tallystream.decoding import json_decoder
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.shutdown import StopRequest
from tallystream_cli.demo import dataset
from tallystream_cli.demo.journal import JournalWriter, Line, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

GROUP = "flights"
APP = "flights"
POLL_S = 0.2


class FlightsApp:
    """One instance: its metrics, its consumer and its journal."""

    def __init__(self, options: argparse.Namespace, journal: JournalWriter) -> None:
        self._options = options
        self._journal = journal
        self._decode = json_decoder(dataset.Flight)
        self._number = 0
        self._uncommitted: dict[int, int] = {}
        self.stop = StopRequest()

        # What an application does to be counted: a registry, its metrics, a reporter.
        self._registry = MetricRegistry(APP)
        self._progress = ConsumerProgress(self._registry, "flights.processed")
        self._delay = self._registry.histogram("flights.delay")
        self._timer = self._registry.timer("flights.batch")
        self._in_flight = self._registry.gauge("flights.in_flight")
        self._in_flight.set(0)
        self.reporter = KafkaReporter(
            self._registry,
            bootstrap_servers=options.bootstrap_servers,
            instance=options.instance,
            topic=options.metrics_topic,
        )

        self._consumer = clients.consumer(
            {
                "bootstrap.servers": options.bootstrap_servers,
                "group.id": options.group,
                "client.id": options.instance,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": options.session_timeout_ms,
                "heartbeat.interval.ms": min(500, options.session_timeout_ms // 3),
                # Little is fetched ahead: what is taken over from another instance then comes soon, not last.
                "queued.min.messages": options.batch,
                "fetch.wait.max.ms": 50,
            }
        )

    def run(self) -> None:
        """Process until `stop` is set; then finish the batch, leave the group and make a last report."""
        self._journal.write(Line("life"))
        self._consumer.subscribe([self._options.topic])
        began, done = time.monotonic(), 0
        with self.reporter:
            while not self.stop.is_set():
                messages = self._consumer.consume(self._options.batch, timeout=POLL_S)
                if messages:
                    self._batch(messages)
                    done += len(messages)
                elif self._uncommitted:
                    self._commit()
                self._pace(began, done)
            self._consumer.close()
        self._journal.write(Line("end"))

    def _batch(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
        self._number += 1
        self._in_flight.set(len(messages))
        with self._timer.time():
            delays = self._process(messages)
        self._progress.processed(messages)  # the counter and the positions, in one step
        line = Line("batch", self._number, len(messages), len(delays), sum(delays), spans(messages))
        self._journal.write(line)
        for partition, _, end in line.spans:
            self._uncommitted[partition] = max(end, self._uncommitted.get(partition, 0))
        if not self._report():
            return
        if self._options.hold_after_report and self._options.hold_after_report.exists():
            self._journal.write(Line("hold", self._number))
            self.stop.wait()
            return
        self._commit()
        self._in_flight.set(0)

    def _process(self, messages: Iterable[Message]) -> list[int]:
        """Do the work: here, to read each event and to take its delay, in minutes."""
        delays = []
        for message in messages:
            delay = self._decode(message.value() or b"").delay
            if delay is not None:
                delays.append(delay)
                self._delay.update(delay)
        return delays

    def _report(self) -> bool:
        while not self.reporter.report_now(timeout=10):
            if self.stop.is_set():
                return False
        self._journal.write(Line("acknowledged", self._number))
        return True

    def _commit(self) -> None:
        # A partition that was taken away meanwhile is its new owner's to commit.
        mine = {assigned.partition for assigned in self._consumer.assignment()}
        self._uncommitted = {partition: end for partition, end in self._uncommitted.items() if partition in mine}
        offsets = [TopicPartition(self._options.topic, partition, end) for partition, end in self._uncommitted.items()]
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # A rebalance came first. The next commit has these offsets too, or their new owner processes them again.
            print(f"commit rejected: {error.args[0].str()}", file=sys.stderr, flush=True)  # noqa: T201 (its log)
            return
        self._uncommitted.clear()
        self._journal.write(Line("committed", self._number))

    def _pace(self, began: float, done: int) -> None:
        until = self._options.slow_until
        if until is not None and not until.exists():
            self.stop.wait(max(0.0, began + done / self._options.rate - time.monotonic()))


def spans(messages: Iterable[Message]) -> list[Span]:
    """Return the ranges of consecutive offsets, in the order of reading within each partition."""
    found: dict[int, list[list[int]]] = {}
    for message in messages:
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None:
            raise ValueError("a message without a partition or an offset did not come from a consumer")
        ranges = found.setdefault(partition, [])
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] = offset + 1
        else:
            ranges.append([offset, offset + 1])
    return [(partition, first, end) for partition, ranges in sorted(found.items()) for first, end in ranges]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m tallystream_cli.demo.app", description="Process flights.")
    add: Callable[..., object] = made.add_argument
    add("--bootstrap-servers", required=True, help="the brokers, host:port,…")
    add("--instance", required=True, help="the instance ID")
    add("--journal", required=True, type=Path, help="the file to which the journal is appended")
    add("--topic", default=dataset.TOPIC, help="what to process (%(default)s)")
    add("--group", default=GROUP, help="the consumer group (%(default)s)")
    add("--metrics-topic", default="metrics", help="where to report (%(default)s)")
    add("--batch", type=int, default=2000, help="events in a batch at most (%(default)s)")
    add("--session-timeout-ms", type=int, default=6000, help="when the group takes a silent member for dead")
    add("--hold-after-report", type=Path, help="once this file exists, stop between the next report and its commit")
    add("--slow-until", type=Path, help="until this file exists, keep to --rate")
    add("--rate", type=float, default=5000.0, help="events per second while slow (%(default)s)")
    return made


def main() -> int:
    """Run one instance until SIGTERM or SIGINT."""
    options = parser().parse_args()
    with JournalWriter(options.journal) as journal:
        app = FlightsApp(options, journal)
        app.stop.install()
        app.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
