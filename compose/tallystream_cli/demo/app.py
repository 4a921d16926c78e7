"""The consumer application of the demonstration: a member of a consumer group that publishes metrics.

    python -m tallystream_cli.demo.app --bootstrap-servers HOST:PORT --instance app-1 --journal FILE

It processes flights in batches: take, report, work, count, report, commit. A committed event is therefore always in the
sums. What it has processed is in its journal, which no kill can change.
"""

from __future__ import annotations

import argparse
import sys
import time
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Message

from tallystream import ConsumerProgress, KafkaReporter, MetricRegistry
from tallystream.decoding import json_decoder
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.shutdown import StopRequest
from tallystream_cli.demo import events
from tallystream_cli.demo.journal import Line, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

APP = GROUP = "flights"
WINDOWS = {
    "taken": "before the report of taken()",
    "reported": "during the work",
    "counted": "between report and commit",
    "committed": "after the commit",
}
"""Where the application can stop to be killed: what it did last, and the window of the kill."""
PROCESSED, DELAY, BATCH, IN_FLIGHT = "flights.processed", "flights.delay", "flights.batch", "flights.in_flight"


class FlightsApp:
    """An instance with its metrics, its consumer and its journal."""

    def __init__(self, options: argparse.Namespace, journal: FileIO) -> None:
        self._options = options
        self._journal = journal
        self._decode = json_decoder(events.Flight)
        self._rejected = False
        self.stop = StopRequest()
        # What an application needs to publish metrics: a registry, metrics, a reporter.
        registry = MetricRegistry(APP)
        self._progress = ConsumerProgress(registry, PROCESSED)
        self._delay = registry.histogram(DELAY)
        self._timer = registry.timer(BATCH)
        self._in_flight = registry.gauge(IN_FLIGHT)
        self._reporter = KafkaReporter(registry, bootstrap_servers=options.bootstrap_servers, instance=options.instance)
        self._consumer = clients.consumer(
            {
                "bootstrap.servers": options.bootstrap_servers,
                "group.id": GROUP,
                "client.id": options.instance,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": options.session_timeout_ms,
                "heartbeat.interval.ms": 500,
                # With little fetched ahead, partitions that are taken over from another instance are processed soon.
                "queued.min.messages": options.batch,
                "max.partition.fetch.bytes": 20_000,
                "fetch.queue.backoff.ms": 5,
                "fetch.wait.max.ms": 50,
            }
        )

    def run(self) -> None:
        """Process until `stop` is set, then finish the batch, leave the group and send a last report."""
        self._consumer.subscribe([events.TOPIC])
        started_at, processed = time.monotonic(), 0
        with self._reporter:
            while not self.stop.is_set():
                messages = self._consumer.consume(self._options.batch, timeout=0.2)
                if messages:
                    self._process_batch(messages)
                    processed += len(messages)
                elif self._rejected:
                    self._commit()
                self._limit_rate(started_at, processed)
            self._consumer.close()

    def _process_batch(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
        self._in_flight.set(len(messages))
        self._progress.taken(messages)
        self._stop_if("taken", messages)
        if not self._report():
            return
        half = (len(messages) + 1) // 2
        with self._timer.time():
            delays = self._work(messages[:half])
            self._stop_if("reported", messages)
            delays += self._work(messages[half:])
        for delay in delays:
            self._delay.update(delay)
        self._progress.processed(messages)  # updates counter and positions together
        if not self._report():
            return
        self._journal.write(Line("counted", spans(messages), len(delays), sum(delays)).text())
        self._in_flight.set(0)
        self._stop_if("counted", messages)
        if self._commit():
            self._stop_if("committed", messages)

    def _work(self, messages: Sequence[Message]) -> list[int]:
        """Decode the events, write them to the journal, and return their delays in minutes."""
        delays = [delay for one in messages if (delay := self._decode(one.value() or b"").delay) is not None]
        self._journal.write(Line("processed", spans(messages)).text())
        return delays

    def _stop_if(self, last: str, messages: Sequence[Message]) -> None:
        """Wait for the kill if it is to come now: after what was done `last`, with these messages taken."""
        stop_after: Path | None = self._options.stop_after
        if stop_after is not None and stop_after.exists() and stop_after.read_text(encoding="utf-8") == last:
            self._journal.write(Line("stopped", spans(messages)).text())
            self.stop.wait()
            sys.exit("stopped instead of killed")

    def _report(self) -> bool:
        while not self._reporter.report_now(timeout=10):
            if self.stop.is_set():
                return False
        return True

    def _commit(self) -> bool:
        """Commit all that was taken, which is counted by now, and return whether the broker has accepted it."""
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            # The group is rebalancing. The next commit includes these offsets, or their new owner processes them again.
            self._rejected = True
            print(f"commit rejected: {error.args[0].str()}", file=sys.stderr, flush=True)  # noqa: T201 (the log)
            return False
        self._rejected = False
        self._journal.write(Line("committed").text())
        return True

    def _limit_rate(self, started_at: float, processed: int) -> None:
        slow_until = self._options.slow_until
        if slow_until is not None and not slow_until.exists():
            self.stop.wait(max(0.0, started_at + processed / self._options.rate - time.monotonic()))


def spans(messages: Iterable[Message]) -> list[Span]:
    """Return the ranges of consecutive offsets."""
    found: list[Span] = []
    for partition, offset in sorted((one.partition() or 0, one.offset() or 0) for one in messages):
        if found and found[-1][::2] == (partition, offset):
            found[-1] = (partition, found[-1][1], offset + 1)
        else:
            found.append((partition, offset, offset + 1))
    return found


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tallystream_cli.demo.app", description="Process flights.")
    add: Callable[..., object] = parser.add_argument
    add("--bootstrap-servers", required=True, help="the brokers, host:port,…")
    add("--instance", required=True, help="the instance ID")
    add("--journal", required=True, type=Path, help="the file for the journal, which is appended to")
    add("--batch", type=int, default=2000, help="the maximum number of events in a batch (%(default)s)")
    add("--session-timeout-ms", type=int, default=6000, help="when the group takes it for dead (%(default)s)")
    add("--stop-after", type=Path, help=f"a file with the place to stop at, to be killed: {', '.join(WINDOWS)}")
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
