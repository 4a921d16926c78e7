"""The choreography: events, two consumers, a SIGKILL between report and commit, a return under the same instance ID."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tallystream.aggregator.sinks.stores import StoreSettings, open_reader
from tallystream.aggregator.spark.aggregate import GROUP
from tallystream.aggregator.topics import Topics
from tallystream.compose.demonstration import flights
from tallystream.compose.demonstration.compare import Evidence
from tallystream.compose.demonstration.journal import Journal, distinct, read
from tallystream.compose.demonstration.replay import replay
from tallystream.compose.demonstration.watch import Watch
from tallystream.compose.servers._process import end, spawn, tail
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from tallystream.compose.demonstration.steps import Steps
    from tallystream.compose.local.system import LocalSystem

FIRST, SECOND = 0.5, 0.8
"""The shares of the events that are sent before app-2 has its partitions, and before it is back: it always has work."""

LIMIT_S = 180.0
"""How long anything may take to happen, beyond the work itself; then the demonstration fails, and says at what."""


class Play:
    """One run of the demonstration on a system that is up; `end` stops the processes that it started."""

    def __init__(self, system: LocalSystem, folder: Path, events: int, steps: Steps, stop: threading.Event) -> None:
        self._system = system
        self._folder = folder
        self._total = events
        self._steps = steps
        self._stop = stop
        self._hold = folder / "hold"
        self._batch = max(50, min(500, events // 1000))
        self._apps: dict[str, subprocess.Popen[bytes]] = {}
        self._journals: list[Path] = []
        self._watch: Watch | None = None

    def run(self) -> Evidence:
        """Play it, and return what everybody counted.

        Raises:
            TallystreamError: something did not happen in its time, or an application died by itself.
        """
        steps, servers = self._steps, self._system.bootstrap_servers
        with steps.step("read the events"):
            events = flights.load(self._total)
            flights.create_topic(servers)
        self._watch = Watch(servers, Topics().agg)
        cuts = [0, int(self._total * FIRST), int(self._total * SECOND), self._total]
        sent = 0
        with steps.step("send the first half of the events"):
            sent += self._send(events[cuts[0] : cuts[1]], sent)
        with steps.step("app-1 works alone"):
            first = self._start("app-1")
            self._until(lambda: read(first).acknowledged > 0, "app-1 processes")
        with steps.step("app-2 shares the partitions"):
            second = self._start("app-2", "--hold", str(self._hold))
            self._until(lambda: read(second).assignments > 0, "app-2 has partitions")
            sent += self._send(events[cuts[1] : cuts[2]], sent)
            self._until(lambda: read(second).acknowledged > 0, "app-2 processes")
        with steps.step("kill -9 of app-2 between its report and its commit; app-1 takes over"):
            self._hold.touch()
            self._until(lambda: read(second).held, "app-2 is between report and commit")
            self._apps.pop("app-2").kill()
            self._hold.unlink()
            self._until(lambda: self._twice() > 0, "app-1 has processed again what app-2 had not committed")
        with steps.step("app-2 is back under the same instance ID; everything is processed"):
            back = self._start("app-2")
            self._until(lambda: read(back).assignments > 0, "app-2 has partitions again")
            sent += self._send(events[cuts[2] : cuts[3]], sent)
            self._until(lambda: distinct(self._read()) >= sent, f"all {sent:,} events are processed")
            self._until(lambda: read(back).acknowledged > 0, "app-2's second life has processed some of them")
        with steps.step("the applications end; the sums catch up"):
            self._endapps()
            topic = Topics().metrics
            end = self._endof(topic)
            self._until(lambda: self._committed(topic) >= end, f"the aggregator has finished {topic} to offset {end}")
            self._watched().read_to(self._endof(Topics().agg))
            stored = self._stored(self._watched().count("flights.processed"))
        with steps.step("compare with a plain replay of metrics"):
            replayed = replay(self._records(topic))
        journals = self._read()
        aggregate = self._watched().values("flights")
        return Evidence(sent, aggregate, replayed, stored, journals, distinct(journals), self._watched().dips)

    def end(self) -> None:
        """Stop the applications and the watch; safe to call at any time."""
        for process in self._apps.values():
            end(process, patience=10)
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _start(self, instance: str, *options: str) -> Path:
        journal = self._folder / f"journal-{instance}-{len(self._journals) + 1}.jsonl"
        self._journals.append(journal)
        command = [sys.executable, "-m", "tallystream.compose.demonstration.app", "--instance", instance]
        command += ["--bootstrap-servers", self._system.bootstrap_servers, "--journal", str(journal)]
        command += ["--batch", str(self._batch), *options]
        self._apps[instance] = spawn(command, self._folder / f"{instance}.log")
        return journal

    def _endapps(self) -> None:
        for instance, process in self._apps.items():
            process.terminate()
            try:
                code = process.wait(60)
            except subprocess.TimeoutExpired as error:
                raise TallystreamError(f"{instance}: it did not end within 60 s of SIGTERM") from error
            if code:
                raise TallystreamError(f"{instance}: ended with code {code}:\n{self._said(instance)}")
        self._apps.clear()

    def _send(self, events: list[flights.Event], before: int) -> int:
        def progress(number: int) -> None:
            self._steps.update(f"{before + number:,} of {self._total:,} events sent")
            self._attend()

        return flights.send(self._system.bootstrap_servers, events, progress=progress, stop=self._stop)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something; progress of the work puts the limit off.

        Raises:
            TallystreamError: it did not happen, or an application died by itself.
        """
        moved, seen = time.monotonic(), -1
        while not condition():
            self._attend()
            processed = sum(journal.processed for journal in self._read())
            count = self._watched().count("flights.processed")
            self._steps.update(f"{processed:,} processed, the sum says {count:,}")
            if processed + count != seen:
                moved, seen = time.monotonic(), processed + count
            if time.monotonic() - moved > LIMIT_S:
                raise TallystreamError(f"demo: gave up after {LIMIT_S:g} s without progress, waiting until {what}.")
            time.sleep(0.05)

    def _attend(self) -> None:
        self._system.tick()
        self._watched().read()
        for instance, process in self._apps.items():
            if process.poll() is not None:
                raise TallystreamError(f"{instance}: ended with code {process.returncode}:\n{self._said(instance)}")

    def _watched(self) -> Watch:
        if self._watch is None:
            raise AssertionError("the demonstration has ended")
        return self._watch

    def _read(self) -> list[Journal]:
        return [read(path) for path in self._journals]

    def _twice(self) -> int:
        journals = self._read()
        return sum(journal.processed for journal in journals) - distinct(journals)

    def _said(self, instance: str) -> str:
        return tail(self._folder / f"{instance}.log")

    def _stored(self, wanted: int) -> int:
        """Return the newest count in the store, as soon as it is `wanted`; what it is otherwise, after the limit."""
        reader = open_reader(StoreSettings.parse(self._system.store_spec))
        began = time.monotonic()
        try:
            while True:
                series = reader.read("flights.processed", ["count"], start_ms=0, end_ms=2**42)
                stored = int(series[0].values[-1]) if series else 0
                if stored == wanted or time.monotonic() - began > LIMIT_S:
                    return stored
                self._attend()
        finally:
            reader.close()

    def _committed(self, topic: str) -> int:
        """Return how far the aggregator's consumer group is: what any lag tool sees."""
        consumer = self._consumer(GROUP)
        try:
            return int(consumer.committed([TopicPartition(topic, 0)], timeout=30)[0].offset)
        finally:
            consumer.close()

    def _endof(self, topic: str) -> int:
        consumer = self._consumer()
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1])
        finally:
            consumer.close()

    def _records(self, topic: str) -> list[tuple[bytes, bytes]]:
        last = self._endof(topic) - 1
        consumer = self._consumer()
        records: list[tuple[bytes, bytes]] = []
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            at = -1
            while at < last:
                messages = consumer.consume(min(1000, last - at), timeout=30)
                if not messages:
                    raise TallystreamError(f"{topic}: nothing was read for 30 s.")
                for message in messages:
                    error = message.error()
                    if error is not None:
                        raise KafkaException(error)
                    records.append((message.key() or b"", message.value() or b""))
                    at = message.offset() or 0
        finally:
            consumer.close()
        return records

    def _consumer(self, group: str = "demo-replay") -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._system.bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
            }
        )
