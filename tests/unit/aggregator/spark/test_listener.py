"""The listener that PySpark registers in the JVM."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQueryManager

from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.spark.epochs.listener import Epoch, EpochListener
from tallystream_aggregator.spark.epochs.processor import EPOCH_ROW, cells
from tallystream_aggregator.stream.epochs import EpochRow

if TYPE_CHECKING:
    import pytest

PROGRESS = '{"batchId":7,"timestamp":"1970-01-01T00:00:02.500Z"}'


def test_the_jvm_calls_the_listener_with_the_progress_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark registers the private property `_jlistener`, which an upgrade may rename (docs/cluster.md).

    Then PySpark would register its own listener, which makes a hundred calls to the JVM for each batch.
    """
    registered: list[Any] = []
    jvm = SimpleNamespace(PythonStreamingQueryListenerWrapper=lambda one: one)
    monkeypatch.setattr(SparkContext, "_jvm", jvm)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(jvm=jvm))
    monkeypatch.setattr("py4j.java_gateway.java_import", lambda _jvm, _name: None)
    monkeypatch.setattr("pyspark.java_gateway.ensure_callback_server_started", lambda _gateway: None)
    listener = EpochListener(Health("aggregate", HealthSettings()))
    manager = StreamingQueryManager(SimpleNamespace(addListener=registered.append))  # type: ignore[arg-type]
    manager.addListener(listener)
    event = SimpleNamespace(progress=lambda: SimpleNamespace(json=lambda: PROGRESS))
    registered[0].onQueryProgress(event)
    assert list(listener.finished) == [Epoch(7, 2500, [])]
    assert registered[0].Java.implements == ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def test_the_last_epoch_is_the_one_in_which_every_loop_saw_the_request_to_stop() -> None:
    """One that had ended before it goes on with its steps, and the next epoch stores them."""
    listener = EpochListener(Health("aggregate", HealthSettings()))
    told = []
    for stopped in ((False, False), (True, False), (True, True)):
        rows = [dict(zip(EPOCH_ROW.names, cells(EpochRow(0, stopped=one)), strict=True)) for one in stopped]
        listener.progressed(json.dumps(json.loads(PROGRESS) | {"observedMetrics": {"epochs": {"shards": rows}}}))
        told.append(listener.stopped)
    assert told == [False, False, True]
