"""The thread that counts the batches of all queries, reports the counts, and then commits the offsets.

The driver can be killed at any point. The first batch that Spark reports to the next driver starts where the last one
ended that was committed by Spark; the offsets committed to the consumer group tell which one was counted last. A kill
- before Spark commits a batch: Spark runs the batch again, and reports it once;
- before the counts of a batch arrive: its offsets are not committed, so the next driver counts it with its first batch;
- between the arrival of the counts and the commit: the next driver counts the batch a second time. Its positions do not
  change by that. The commit follows the report immediately, so this is rare.
"""

from __future__ import annotations

import logging
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from tallystream.clock import Deadline
from tallystream.kafka.group_offsets import OffsetsError
from tallystream.log_throttle import RateLimitFilter
from tallystream.spark.batches import CountedOffsets, read_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream.kafka.group_offsets import GroupOffsets, Partition
    from tallystream.metric_factory import MetricFactory
    from tallystream.registry import MetricRegistry, Reporter
    from tallystream.spark.batches import Batch, Uncounted

REQUEST_S = 5.0
"""The time limit of a report, and of a request to the brokers."""

RESUME_S = 30.0
"""How long the committed offsets of a query are requested before it is counted without them."""

RETRY_S = 0.2
"""The pause between two of these requests."""

_log = logging.getLogger("tallystream.spark")
_log.addFilter(RateLimitFilter())


class QueryMetrics:
    """The metrics of the queries of one name. All have the tag `query`; docs/guides/spark.md lists them."""

    def __init__(self, registry: MetricFactory, query: str) -> None:
        self._registry = registry.child("spark", {"query": query})
        self._rows = self._registry.counter("rows")
        self._batches = self._registry.counter("batches")
        self._duration = self._registry.timer("batch.duration")
        self._failures = self._registry.counter("failures")
        self._positions: set[tuple[str, int]] = set()

    def add(self, batch: Batch, uncounted: Uncounted) -> None:
        """Count a batch, and batches before it that were not reported, in one step."""
        self._colocate(uncounted)
        with self._registry.atomic():
            self._rows.inc(batch.rows)
            self._batches.inc(uncounted.batches)
            self._duration.update(batch.seconds)
            self._registry.gauge("state.rows").set(batch.state_rows)
            self._registry.gauge("state.bytes").set(batch.state_bytes)
            if batch.watermark is not None:
                self._registry.gauge("watermark").set(batch.watermark)
            if uncounted.spans:
                self._registry.counter("records").inc(uncounted.records)
            for (topic, partition), (start, end) in uncounted.spans.items():
                self._registry.position(topic, partition, name="records.position").advance(start, end)

    def fail(self) -> None:
        """Count a query that ended with an exception."""
        self._failures.inc()

    def _colocate(self, uncounted: Uncounted) -> None:
        new = [at for at in uncounted.spans if at not in self._positions]
        if new:
            positions = [self._registry.position(*at, name="records.position") for at in new]
            self._registry.colocate(self._registry.counter("records"), *positions)
            self._positions.update(new)


class Query:
    """A query that runs: its metrics, how far it has been counted, and its consumer group, if it has one."""

    def __init__(self, query_id: str, metrics: QueryMetrics) -> None:
        self.id, self.metrics = query_id, metrics
        self.counted: CountedOffsets | None = None
        self.group: GroupOffsets | None = None
        self.is_uncommitted = False
        self.has_ended = False


class QueryRecorder:
    """Counts what the listener passes on, in a daemon thread of its own.

    Args:
        registry: the registry of the metrics.
        reporter: its reporter.
        open_group: returns the consumer group of a query with Kafka sources, given its name; None: commit nothing.
    """

    def __init__(
        self, registry: MetricRegistry, reporter: Reporter, open_group: Callable[[str], GroupOffsets] | None
    ) -> None:
        self._registry, self._reporter, self._open_group = registry, reporter, open_group
        self._monotonic = registry.clock.monotonic
        self._queries: dict[str, Query] = {}
        self._names: dict[str, str] = {}  # by run: a query may start again before the end of its last run is passed on
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._stopping = threading.Event()
        self._retry_at = 0.0
        self._thread = threading.Thread(target=self._run, name="tallystream-spark", daemon=True)
        self._thread.start()

    @property
    def running(self) -> frozenset[str]:
        """The run IDs of the queries that have started and not ended, as far as Spark has passed it on."""
        return frozenset(self._names)

    def started(self, run_id: str, name: str) -> None:
        """Remember the name of a query that has started."""
        self._names[run_id] = name

    def progress(self, text: str) -> None:
        """Count a batch, given its progress as JSON."""
        self._work.put(lambda: self._count(read_progress(text)))

    def terminated(self, run_id: str, query_id: str, *, failed: bool) -> None:
        """Record that a run of a query has ended, and whether it failed."""
        name = self._names.get(run_id, query_id)
        self._work.put(lambda: self._end(query_id, name, failed=failed))
        self._names.pop(run_id, None)  # last: the monitor stops the recorder when no query is running

    def stop(self, timeout: float) -> bool:
        """Count, report and commit what has been passed on; return whether this ended within `timeout` seconds."""
        self._stopping.set()
        self._work.put(lambda: None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._call(self._wait())
            is_last = self._stopping.is_set()  # what was passed on before is in the queue
            while not self._work.empty():
                self._call(self._work.get())
            if is_last or self._monotonic() >= self._retry_at:
                self._call(self._commit_all)
        for query in self._queries.values():
            if query.group is not None:
                query.group.close()

    def _wait(self) -> Callable[[], None]:
        is_waiting = any(query.is_uncommitted for query in self._queries.values())
        try:
            return self._work.get(timeout=max(self._retry_at - self._monotonic(), 0.0) if is_waiting else None)
        except Empty:
            return lambda: None

    def _call(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the job must go on, whatever Spark or Kafka returns
            _log.warning("%s: %s; the metrics of a batch or its offsets are missing", type(error).__name__, error)
            _log.debug("the failure in full", exc_info=True)

    def _query(self, query_id: str, name: str) -> Query:
        if query_id not in self._queries:
            self._queries[query_id] = Query(query_id, QueryMetrics(self._registry, name))
        return self._queries[query_id]

    def _count(self, batch: Batch) -> None:
        query = self._query(batch.query_id, batch.query)
        if query.counted is None:
            query.counted = CountedOffsets()
            self._call(lambda: self._resume(query, batch))
        uncounted = query.counted.add(batch, self._beginning_offsets(query, batch))
        if uncounted is not None:
            query.metrics.add(batch, uncounted)
            query.is_uncommitted = query.group is not None

    def _resume(self, query: Query, batch: Batch) -> None:
        """Continue after what an earlier driver has counted: the offsets that it committed for the same query ID."""
        if self._open_group is None or not batch.ends:
            return
        query.group = self._open_group(batch.query)
        deadline = Deadline(RESUME_S, self._monotonic)
        while True:
            try:
                found = query.group.read(batch.ends, REQUEST_S)
            except OffsetsError as error:
                if deadline.left() and not self._stopping.wait(RETRY_S):
                    continue
                text = "the offsets of group %r can't be read, so batches of a killed driver may be missing: %s"
                _log.warning(text, query.group.group, error)
                return
            metadata = {at: one.metadata.partition(" ") for at, one in found.items()}
            mine = {at: int(number) for at, (query_id, _, number) in metadata.items() if query_id == query.id}
            query.counted = CountedOffsets({at: found[at].offset for at in mine}, max(mine.values(), default=None))
            return

    def _beginning_offsets(self, query: Query, batch: Batch) -> Mapping[Partition, int]:
        if query.group is None or not batch.without_start:
            return {}
        try:
            return query.group.beginning_offsets(batch.without_start, REQUEST_S)
        except OffsetsError as error:
            _log.warning("the first offsets of partitions can't be read, so their records are estimated: %s", error)
            return {}

    def _end(self, query_id: str, name: str, *, failed: bool) -> None:
        query = self._query(query_id, name)
        query.has_ended = True
        if failed:
            query.metrics.fail()

    def _commit_all(self) -> None:
        waiting = [query for query in self._queries.values() if query.is_uncommitted]
        if waiting:
            self._retry_at = self._monotonic() + REQUEST_S
            if self._reporter.report_now(REQUEST_S):  # else the counts could be lost with the driver
                for query in waiting:
                    self._commit(query)
            if not any(query.is_uncommitted for query in waiting):
                self._retry_at = 0.0
        for query in [one for one in self._queries.values() if one.has_ended and not one.is_uncommitted]:
            if query.group is not None or query.counted is None:
                del self._queries[query.id]
            if query.group is not None:  # if the query starts again, its group tells how far it was counted
                query.group.close()

    def _commit(self, query: Query) -> None:
        assert query.group is not None
        assert query.counted is not None
        try:
            query.group.commit(query.counted.ends, f"{query.id} {query.counted.batch}", REQUEST_S)
        except OffsetsError as error:
            text = "the offsets of group %r are not committed yet, which is tried again: %s"
            _log.warning(text, query.group.group, error)
        else:
            query.is_uncommitted = False
