"""The steps of the demonstration: send events, run two consumers, kill one in each window, restart it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_cli.demo import app, events, journal
from tallystream_cli.servers.process import POLL_S, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.demo.sums import SumsReader

AGGREGATOR, SHIPPER = "tallystream-aggregator", "tallystream-shipper"
TIMEOUT_S = 30.0
NO_PROGRESS_TIMEOUT_S = 180.0
SLOW_S = 240
"""Until the last restart of app-2, each consumer processes at most a 240th of the events per second. So events are left
for its last life even on a slow machine. Then both work at full speed."""


class ScenarioError(TallystreamError):
    """A consumer application failed or did not stop, or what the demonstration waits for does not come."""


class AppProcess(Server):
    """The processes of one instance ID, one after another, which share a journal."""

    def __init__(self, instance: str, folder: Path, options: Sequence[str]) -> None:
        super().__init__(instance, folder / f"{instance}.log")
        self._journal = folder / f"{instance}.journal"
        self._stop_file = folder / f"{instance}.stop-after"
        self._options = options
        self._lines_before = 0

    def begin(self) -> None:
        """Start a process. None may be running."""
        self._lines_before = len(self.lines())
        own = ("--instance", self.name, "--journal", str(self._journal), "--stop-after", str(self._stop_file))
        self._spawn([sys.executable, "-m", "tallystream_cli.demo.app", *self._options, *own])

    def ready(self) -> bool:
        """Return whether the process has committed a batch."""
        return bool(journal.of_kind(self.lines()[self._lines_before :], "committed"))

    def lines(self) -> list[journal.Line]:
        """Return the lines of the journal."""
        return journal.parse(self._journal.read_bytes()) if self._journal.exists() else []

    def stop_after(self, last: str) -> None:
        """Let the process stop in its next batch, after it did `last`."""
        self._stop_file.write_text(last, encoding="utf-8")

    def kill(self) -> None:
        """Kill the process with SIGKILL; the next one does not stop."""
        super().kill()
        self._process = None
        self._stop_file.unlink(missing_ok=True)

    def finish(self) -> None:
        """Stop the process with SIGTERM.

        Raises:
            ScenarioError: it failed, or did not stop in time and was killed.
        """
        process = self._process
        self.stop()
        if process is not None and process.returncode:
            raise ScenarioError(f"{self.name}: ended with code {process.returncode}:\n{self.last_output()}")


class Scenario:
    """Runs the steps on a broker.

    While it waits, it calls `progress` several times a second, with the events that are processed by the sums. That may
    raise an error, to stop.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        folder: Path,
        number: int,
        *,
        sums: SumsReader,
        progress: Callable[..., object],
        batch: int,
    ) -> None:
        self._servers = bootstrap_servers
        self._number = number
        self._sums = sums
        self._progress = progress
        self._full_speed_file = folder / "full-speed"
        options = (
            *("--bootstrap-servers", bootstrap_servers, "--batch", str(batch), "--session-timeout-ms", "3000"),
            *("--slow-until", str(self._full_speed_file), "--rate", str(number / SLOW_S)),
        )
        self.apps = [AppProcess(instance, folder, options) for instance in ("app-1", "app-2")]

    def send(self, sources: Sequence[events.Event]) -> int:
        """Send the events and return how many the topic has."""
        events.create_topic(self._servers)
        events.send(self._servers, sources, self._number, progress=lambda number: self._progress(sent=number))
        return sum(self._ends(events.TOPIC).values())

    def start(self, instance: AppProcess) -> None:
        """Start a process of an instance, and return when it has committed a batch."""
        instance.begin()
        self._wait_until(instance.ready, f"{instance.name} has committed a batch")

    def kill(self, last: str, topics: Topics) -> None:
        """Kill app-2 after it did `last`, and return when app-1 has taken over and all that both counted is summed."""
        first, second = self.apps
        second.stop_after(last)
        self._wait_until(lambda: journal.of_kind(second.lines()[-1:], "stopped"), f"app-2 has stopped: {last}")
        ends = journal.ends(second.lines()[-1:])
        second.kill()

        def taken_over() -> bool:
            reached = journal.ends(journal.of_kind(first.lines(), "counted"))
            return all(reached.get(partition, 0) >= end for partition, end in ends.items())

        self._wait_until(taken_over, "app-1 has counted what app-2 had taken")
        self._wait_committed(AGGREGATOR, topics.metrics)
        self._sums.refresh()

    def finish(self) -> None:
        """Let both work at full speed until every event is committed, then stop them."""
        self._full_speed_file.touch()
        self._wait_committed(app.GROUP, events.TOPIC)
        for one in self.apps:
            one.finish()

    def catch_up(self, topics: Topics) -> None:
        """Wait until all that the applications published is summed, and all sums are shipped."""
        self._wait_committed(AGGREGATOR, topics.metrics)
        self._wait_committed(SHIPPER, topics.agg)
        self._sums.refresh()

    def kill_all(self) -> None:
        """Kill the applications. May be called again."""
        for one in self.apps:
            one.kill()

    def lines(self) -> list[journal.Line]:
        """Return the lines of both journals."""
        return [line for one in self.apps for line in one.lines()]

    def _wait_committed(self, group: str, topic: str) -> None:
        # The ends with what is not committed yet: the markers of a step become visible at different times.
        ends = self._ends(topic)
        places = [TopicPartition(topic, number) for number in ends]
        with clients.metadata_consumer({"bootstrap.servers": self._servers}, group) as consumer:
            self._wait_until(
                lambda: all(one.offset >= ends[one.partition] for one in consumer.committed(places, timeout=TIMEOUT_S)),
                f"{group} has committed the ends of {topic}: {ends}",
            )

    def _ends(self, topic: str) -> dict[int, int]:
        broker = KafkaBroker({"bootstrap.servers": self._servers}, Selection(topic), clients.READING)
        bounds = broker.bounds([Place(topic, number) for number in broker.partitions_of(topic)])
        return {place.partition: found.end for place, found in bounds.items()}

    def _wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds.

        Raises:
            ScenarioError: it did not hold, and the sums did not change, for `NO_PROGRESS_TIMEOUT_S`.
            StartError: an application ended.
        """
        deadline, last_count = time.monotonic() + NO_PROGRESS_TIMEOUT_S, -1
        while not condition():
            for one in self.apps:
                one.check()
            self._sums.refresh()
            count = self._sums.count()
            self._progress(processed=count)
            if count != last_count:
                deadline, last_count = time.monotonic() + NO_PROGRESS_TIMEOUT_S, count
            if time.monotonic() > deadline:
                raise ScenarioError(f"demo: waited {NO_PROGRESS_TIMEOUT_S:g} s in vain until {what}.")
            time.sleep(POLL_S)
