"""Recycle worker processes, and compare Tallystream with prometheus_client's multiprocess mode.

Each worker is a forked process that counts and ends normally. One process lives on. After 10, 100 and 1,000 workers its
report (Tallystream, to a real broker) or its scrape (prometheus_client) is timed, and the sums are compared with the
work done:

    .venv/bin/python -m benchmarks.workers --workers 1000
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.aggregator.report import table as as_table
from benchmarks.table.measuring import apply
from tallystream import KafkaReporter, MetricRegistry
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.table import Record, State, Table
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

COUNTERS, COUNT, AT_ONCE, TIMES = 50, 7, 4, 9
NAMES = [f"work_done_{number:02d}" for number in range(COUNTERS)]
Figures = dict[str, Any]


class Tallystream:
    """A reporter to a real broker, and the aggregator's table over the topic."""

    side = "tallystream"

    def __init__(self, servers: str, folder: Path) -> None:
        folder.mkdir()
        # Files that a library writes without being told where are written to these folders, and counted.
        os.chdir(folder)
        os.environ |= dict.fromkeys(
            ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), str(folder)
        )
        tempfile.tempdir = None
        self._folder = folder
        self._topics = Topics()
        create_topics(AdminClient({"bootstrap.servers": servers}), self._topics)
        registry = MetricRegistry("bench")
        self._counters = [registry.counter(name) for name in NAMES]
        # It is started only in the workers: this process makes a report when one is timed.
        self._reporter = KafkaReporter(registry, bootstrap_servers=servers, instance="host-1", interval=3600)
        self._table = Table(State())
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})
        topic = self._topics.metrics
        partitions = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        self._ends = dict.fromkeys(partitions, 0)

    def work(self) -> None:
        """Do the work of one process, which ends without any call for it."""
        self._reporter.start()
        self.count()

    def count(self) -> None:
        """Increment each counter."""
        for counter in self._counters:
            counter.inc(COUNT)

    def expose(self) -> None:
        """Make a report."""
        assert self._reporter.report_now(60)

    def figures(self) -> Figures:
        """Return what the table has, and the milliseconds in which it takes one more report."""
        apply(self._table, self._read())
        self._table.outputs()
        self.expose()
        records = list(self._read())
        began = time.perf_counter()
        apply(self._table, records)
        changes = self._table.outputs()
        took = time.perf_counter() - began
        rows = [sums.decode(total.value()) for total in changes.totals]
        counts = {row.name: row.count for row in rows if row.name in NAMES}
        return {"counts": counts, "table_ms": took * 1000} | on_disk(self._folder)

    def close(self) -> None:
        """Close the connections."""
        self._reporter.stop()
        self._consumer.close()

    def _read(self) -> Iterator[Record]:
        """Read the topic to its end."""
        topic = self._topics.metrics
        for partition, at in self._ends.items():
            self._ends[partition] = end = self._consumer.get_watermark_offsets(TopicPartition(topic, partition))[1]
            left = end - at
            while left:
                message = self._consumer.poll(30)
                assert message is not None, "the topic can't be read"
                left -= 1
                yield Record(
                    topic, message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value()
                )


class PrometheusClient:
    """prometheus_client's multiprocess mode: each process writes a file, and a scrape reads all of them."""

    side = "prometheus_client"

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)  # prometheus_client reads it when it is imported
        import prometheus_client
        from prometheus_client.multiprocess import MultiProcessCollector

        self._folder, self._library = folder, prometheus_client
        own = prometheus_client.CollectorRegistry()
        self._counters = [prometheus_client.Counter(name, "Work.", registry=own) for name in NAMES]
        self._collected = prometheus_client.CollectorRegistry()
        MultiProcessCollector(self._collected)  # type: ignore[no-untyped-call]

    def work(self) -> None:
        """Do the work of one process."""
        self.count()

    def count(self) -> None:
        """Increment each counter."""
        for counter in self._counters:
            counter.inc(COUNT)

    def expose(self) -> None:
        """Make the text of a scrape."""
        self._library.generate_latest(self._collected)

    def figures(self) -> Figures:
        """Return the sums of a scrape, and what is on the disk."""
        found = {name: self._collected.get_sample_value(f"{name}_total") for name in NAMES}
        return {"counts": found} | on_disk(self._folder)


def on_disk(folder: Path) -> Figures:
    """Return the number of files in a folder, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return {"files": len(sizes), "bytes": sum(sizes)}


def _now_ms() -> int:
    return int(time.time() * 1000)


def recycle(work: Callable[[], None], workers: int) -> None:
    """Run that many workers, some at once, to their ends."""
    context = multiprocessing.get_context("fork")
    running: deque[Any] = deque()
    for _ in range(workers):
        if len(running) == AT_ONCE:
            running.popleft().join()
        running.append(context.Process(target=work))
        running[-1].start()
    for process in running:
        process.join()


def measure(side: Tallystream | PrometheusClient, steps: Sequence[int]) -> list[Figures]:
    """Recycle workers up to each of the steps, and return the figures of each one."""
    results, done = [], 0
    side.count()
    for workers in steps:
        began = time.perf_counter()
        recycle(side.work, workers - done)
        took, done = time.perf_counter() - began, workers
        times = []
        for _ in range(TIMES):
            start = time.perf_counter()
            side.expose()
            times.append((time.perf_counter() - start) * 1000)
        figures = side.figures()
        counts = figures.pop("counts")
        exact = counts == dict.fromkeys(NAMES, (workers + 1) * COUNT)
        results.append({"side": side.side, "workers": workers, "expose_ms": statistics.median(times)} | figures)
        results[-1] |= {"exact": exact, "recycle_s": took}
    return results


def show(results: Sequence[Figures]) -> str:
    """Return the table in Markdown."""
    heads = ["", "workers that ended", "files", "KB on the host's disk", "a report or scrape, ms", "sums"]
    rows = [
        [
            one["side"],
            f"{one['workers']:,}",
            f"{one['files']:,}",
            f"{one['bytes'] / 1000:,.0f}",
            f"{one['expose_ms']:,.1f}",
            "right" if one["exact"] else "**wrong**",
        ]
        for one in results
    ]
    ours = [one for one in results if "table_ms" in one]
    update = ", ".join(f"{one['table_ms']:.2f}" for one in ours)
    return as_table(heads, rows) + f"\nOne report in the aggregator's table at these numbers of lives: {update} ms.\n"


def main() -> int:
    """Measure both and print the table. Return 1 if a sum was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000, help="the number of workers of the last step")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    steps = sorted({max(1, options.workers // part) for part in (100, 10, 1)})
    with tempfile.TemporaryDirectory() as folder:
        results = measure(PrometheusClient(Path(folder) / "prometheus"), steps)
        with KafkaBroker(Path(folder) / "broker") as broker:
            ours = Tallystream(broker.bootstrap_servers, Path(folder) / "tallystream")
            results += measure(ours, steps)
            ours.close()
    print("\n".join(map(json.dumps, results)) if options.json else show(results))
    return 0 if all(one["exact"] for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
