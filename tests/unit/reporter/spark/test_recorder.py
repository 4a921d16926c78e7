"""The recorder counts, reports and then commits, and no failure of Kafka reaches the job."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from support.wait import wait_until
from tallystream import ConfigError, MetricRegistry
from tallystream.kafka.group_offsets import Committed, OffsetsError, Partition
from tallystream.spark import Monitor, monitor
from tallystream.spark import recorder as recorder_module
from tallystream.spark.recorder import QueryRecorder

TAGS = {"query": "scores"}


class Kafka:
    """A reporter and a consumer group whose requests can fail; `calls` has what was requested, in order."""

    group = "spark-app-scores"
    connected = enabled = is_running = True

    def __init__(self, committed: dict[Partition, Committed] | None = None) -> None:
        self.stored = dict(committed or {})
        self.failing: set[str] = set()
        self.beginnings: dict[Partition, int] = {}
        self.calls: list[str] = []

    def _request(self, name: str) -> None:
        self.calls.append(name)
        if name in self.failing:
            raise OffsetsError("Broker: Coordinator not available")

    def report_now(self, _timeout: float = 10.0) -> bool:
        """Report; return False if it does not arrive."""
        self.calls.append("report")
        return "report" not in self.failing

    def stop(self, _timeout: float = 5.0) -> bool:
        """Return True."""
        return True

    def read(self, partitions: Iterable[Partition], _timeout: float) -> dict[Partition, Committed]:
        """Return the committed offsets."""
        self._request("read")
        return {at: one for at, one in self.stored.items() if at in set(partitions)}

    def beginning_offsets(self, partitions: Iterable[Partition], _timeout: float) -> dict[Partition, int]:
        """Return the first offset of each partition."""
        self._request("beginning_offsets")
        return {at: self.beginnings.get(at, 0) for at in partitions}

    def commit(self, offsets: Mapping[Partition, int], metadata: str, _timeout: float) -> None:
        """Commit the offsets."""
        self._request("commit")
        self.stored.update({at: Committed(offset, metadata) for at, offset in offsets.items()})

    def close(self) -> None:
        """Note the call."""
        self.calls.append("close")


def progress(number: int, start: int | None, end: int, rows: int = 0) -> str:
    offsets = {"startOffset": None if start is None else {"a": {"0": start}}, "endOffset": {"a": {"0": end}}}
    source = {"description": "KafkaV2[Subscribe[a]]", "numInputRows": rows, **offsets}
    values = {"id": "id", "runId": "run", "name": "scores", "batchId": number, "batchDuration": 5}
    return json.dumps({**values, "stateOperators": [], "sources": [source]})


def recording(kafka: Kafka) -> tuple[MetricRegistry, QueryRecorder]:
    registry = MetricRegistry("app")
    return registry, QueryRecorder(registry, kafka, lambda _: kafka)  # type: ignore[arg-type,return-value]


def test_the_order_is_count_report_commit() -> None:
    """Offsets are committed after the report, with the query's ID and the number of the batch."""
    kafka = Kafka()
    registry, recorder = recording(kafka)
    recorder.started("run", "scores")
    recorder.progress(progress(0, None, 5, rows=3))
    assert recorder.stop(10)
    assert kafka.calls == ["read", "beginning_offsets", "report", "commit", "close"]
    assert kafka.stored == {("a", 0): Committed(5, "id 0")}
    assert registry.counter("spark.records", TAGS).count == 3


def test_the_broker_is_asked_for_the_beginning_of_partitions_without_a_start() -> None:
    """That is once for each partition: in the first batch, or when a later one has a new partition."""
    kafka = Kafka()
    kafka.beginnings = {("a", 0): 2, ("g", 0): 5000}
    registry, recorder = recording(kafka)
    recorder.progress(progress(0, None, 5, rows=6))
    recorder.progress(progress(1, 5, 7).replace('"endOffset": {', '"endOffset": {"g": {"0": 5010}, '))
    recorder.progress(progress(2, 7, 8))
    assert recorder.stop(10)
    assert kafka.calls.count("beginning_offsets") == 2
    assert registry.counter("spark.records", TAGS).count == (5 - 2) + (2 + 10) + 1


def test_the_gap_after_a_kill_is_counted_only_for_the_same_query() -> None:
    """Offsets that a query with another ID has committed, or another program, do not count."""
    for metadata, records in (("id 3", 20), ("other 3", 5), ("", 5)):
        registry, recorder = recording(Kafka({("a", 0): Committed(10, metadata)}))
        recorder.progress(progress(6, 25, 30))
        assert recorder.stop(10)
        assert registry.counter("spark.records", TAGS).count == records


def test_a_commit_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The newest offsets are committed when the broker answers again. The failure is logged once."""
    monkeypatch.setattr(recorder_module, "REQUEST_S", 0.05)
    kafka = Kafka()
    kafka.failing = {"commit", "beginning_offsets"}
    registry, recorder = recording(kafka)
    with caplog.at_level(logging.WARNING, "tallystream.spark"):
        for number in range(3):
            recorder.progress(progress(number, number or None, number + 1, rows=1))
            wait_until(lambda: kafka.calls.count("commit") > number, 30, "a commit has failed")  # noqa: B023
        kafka.failing.clear()
        wait_until(lambda: kafka.stored == {("a", 0): Committed(3, "id 2")}, 30, "the offsets are committed")
    assert recorder.stop(10)
    assert registry.counter("spark.records", TAGS).count == 3
    assert len([one for one in caplog.records if "not committed yet" in one.message]) <= 1


def test_offsets_wait_until_the_counts_have_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """While reports do not arrive nothing is committed, so that the next driver counts these batches."""
    monkeypatch.setattr(recorder_module, "REQUEST_S", 0.05)
    kafka = Kafka()
    kafka.failing = {"report"}
    _, recorder = recording(kafka)
    recorder.progress(progress(0, None, 5))
    wait_until(lambda: kafka.calls.count("report") > 2, 30, "the report is tried again")
    assert kafka.stored == {}
    kafka.failing.clear()
    wait_until(lambda: kafka.stored == {("a", 0): Committed(5, "id 0")}, 30, "the offsets are committed")
    assert recorder.stop(10)


def test_a_progress_that_is_not_understood_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Other batches are counted."""
    registry, recorder = recording(Kafka())
    recorder.progress("{}")
    recorder.progress(progress(1, 0, 2))
    assert recorder.stop(10)
    assert registry.counter("spark.records", TAGS).count == 2


def test_a_query_that_starts_again_before_its_end_is_passed_on_keeps_its_name() -> None:
    """Spark passes on the end of the first run late: both runs run until then, and both failures have the name."""
    kafka = Kafka()
    registry, recorder = recording(kafka)
    recorder.started("run 1", "scores")
    recorder.progress(progress(0, None, 5))
    recorder.started("run 2", "scores")
    assert recorder.running == {"run 1", "run 2"}
    recorder.terminated("run 1", "id", failed=True)
    assert recorder.running == {"run 2"}
    wait_until(lambda: "close" in kafka.calls, 30, "the end of the first run is recorded")
    recorder.terminated("run 2", "id", failed=True)
    assert recorder.stop(10)
    failures = {metric.tags["query"]: metric.count for metric in registry.snapshot() if metric.name == "spark.failures"}
    assert failures == {"scores": 2}


def test_a_query_that_was_started_before_the_monitor_has_its_id_as_its_name() -> None:
    """The end of a query without a start or a batch counts too."""
    registry, recorder = recording(Kafka())
    recorder.terminated("run", "id", failed=True)
    assert recorder.stop(10)
    assert registry.counter("spark.failures", {"query": "id"}).count == 1


def test_a_query_that_ends_before_its_first_batch_is_forgotten() -> None:
    """A job that starts such a query again and again, without a checkpoint, gives each another ID.

    One that ended with an exception counts as a failure, one that was stopped does not.
    """
    registry, recorder = recording(Kafka())
    for number in range(6):
        recorder.started(f"run {number}", "scores")
        assert recorder.running == {f"run {number}"}
        recorder.terminated(f"run {number}", f"id {number}", failed=number % 2 == 0)
    assert recorder.running == frozenset()
    assert recorder.stop(10)
    assert registry.counter("spark.failures", TAGS).count == 3
    assert not recorder._queries


@pytest.mark.parametrize("group", ["spark-{topic}", "{", "", 5])
def test_a_group_that_cannot_be_used(group: object) -> None:
    """The error names the argument, the value and the fields that exist."""
    with pytest.raises(ConfigError, match=r"group: .* can't be used; use a name, in which \{app\} and \{query\}"):
        monitor(None, "orders", group=group)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["options", "source_options"])
def test_options_that_cannot_be_used(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the argument, and no reporter is started."""
    registry = MetricRegistry("default")
    monkeypatch.setattr("tallystream.instrumentation.default._registry", registry)
    arguments: dict[str, Any] = {field: "hush"}
    with pytest.raises(ConfigError, match=f"^{field}: '\\*\\*\\*' can't be used; give a mapping"):
        monitor(None, "orders", **arguments)
    assert not registry.has_reporter


def test_nothing_is_started_if_reporting_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TALLYSTREAM_ENABLED=0 the session is not used."""
    monkeypatch.setenv("TALLYSTREAM_ENABLED", "0")
    assert monitor(None, "orders").stop()


def test_a_monitor_after_a_stop_reports_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook: the second monitor starts the reporter of the same registry, and ends it."""
    registry = MetricRegistry("default")
    monkeypatch.setattr("tallystream.instrumentation.default._registry", registry)
    streams = SimpleNamespace(active=[], addListener=lambda _: None, removeListener=lambda _: None)
    for _ in range(2):
        session = SimpleNamespace(streams=streams)
        ended = monitor(session, "orders", bootstrap_servers="127.0.0.1:1", instance="i", commit_offsets=False)
        assert registry.reporter.is_running
        ended.stop(2)
        assert not registry.reporter.is_running


def test_a_stopped_monitor_leaves_nothing_behind() -> None:
    """A notebook may make one after another: the thread of each ends, and its session is not kept."""
    streams = SimpleNamespace(active=[], addListener=lambda _: None, removeListener=lambda _: None)
    recorder: Any = SimpleNamespace(running=frozenset(), stop=lambda _: True)
    stopped = Monitor(SimpleNamespace(streams=streams), recorder, None)
    kept = weakref.ref(stopped)
    assert stopped.stop()
    del stopped
    threads = {thread for thread in threading.enumerate() if thread.name == "tallystream-spark-end"}
    wait_until(lambda: not threads & set(threading.enumerate()), 30, "the thread ends")
    gc.collect()
    assert kept() is None


ENDING = """
import threading
from types import SimpleNamespace
from tallystream.spark.monitoring import Monitor

removed = threading.Event()
threading.Thread(target=removed.wait).start()  # the listener's thread of Spark Connect is no daemon either
streams = SimpleNamespace(active=[], addListener=lambda _: None, removeListener=lambda _: removed.set())
recorder = SimpleNamespace(running=frozenset(), stop=lambda timeout: not print("stopped"))
Monitor(SimpleNamespace(streams=streams), recorder, None)
"""


def test_the_monitor_stops_when_the_program_ends() -> None:
    """The program ends, although the listener's thread does not end by itself, and the recorder is stopped once."""
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "stopped\n"
