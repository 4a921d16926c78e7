"""The stateful processor of the loop, run by Spark's tester without Spark, around a loop that only takes notes."""

from __future__ import annotations

import gc
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.spark.cds_archive import store_entry
from tallystream_aggregator.spark.epochs import task as module
from tallystream_aggregator.spark.epochs.processor import EpochProcessor
from tallystream_aggregator.spark.epochs.query import EPOCH_ROW, import_modules, rows_of
from tallystream_aggregator.spark.epochs.task import EpochSettings, EpochTask, StopFile
from tallystream_aggregator.stream.broker import FencedError
from tallystream_aggregator.stream.epochs import EpochRow
from tallystream_aggregator.stream.positions import Claim, LoopId
from tallystream_aggregator.stream.restore import LoopSettings
from tallystream_aggregator.table.storage import Store

TOPICS = Topics("t-")


class NotedLoop:
    """Stands in for `ShardLoop`: notes the epochs, and stores a head. A list in `failures` makes the next ones fail."""

    made: list[NotedLoop] = []  # noqa: RUF012 (the test clears it)
    failures: list[Exception] = []  # noqa: RUF012

    def __init__(self, settings: LoopSettings, *_: object) -> None:
        self.settings, self.epochs, self.closed = settings, list[tuple[Any, float]](), False
        self.calls: list[str] = []
        self.current = True
        self.made.append(self)

    def run_epoch(self, store: Store, claim: Claim, seconds: float) -> EpochRow:
        """Note the epoch."""
        if self.failures:
            raise self.failures.pop()
        self.epochs.append((claim, seconds))
        self.calls.append("epoch")
        store.set_head(b"%d" % len(self.epochs))
        return EpochRow(0, steps=3, records=2, sums=4, rows=5, state_bytes=9, positions={"t-metrics": {"1": 7}})

    def is_current(self, store: Store) -> bool:  # noqa: ARG002 (as the loop's)
        """Return what the test says."""
        return self.current

    def run_between(self, next_begins: Callable[[], bool]) -> None:
        """Go on until the next epoch begins, or for as long as a test may take."""
        self.calls.append("between")
        until_s = time.monotonic() + 60
        while not next_begins() and time.monotonic() < until_s:
            time.sleep(0.001)
        self.calls.append("ended")

    def close(self) -> None:
        """Note that it is closed."""
        self.closed = True


@pytest.fixture(autouse=True)
def loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[NotedLoop]]:
    """The loops that a test made."""
    monkeypatch.setattr(module, "ShardLoop", NotedLoop)
    NotedLoop.made.clear()
    module._in_memory.clear()
    yield NotedLoop.made
    for found in module._in_memory.values():
        found.end()
    module._in_memory.clear()
    gc.enable()
    gc.unfreeze()


class Job(TwsTester):
    """Runs epochs of shard 0."""

    def __init__(self, generation: int = 3, epoch_s: float = 5.0) -> None:
        settings = EpochSettings(LoopSettings(LoopId(TOPICS)), generation, "/none", epoch_s)
        self._batch = 0
        task = EpochTask(settings, lambda _: None, claim=lambda generation: (generation, self._batch))  # type: ignore[arg-type, return-value]
        super().__init__(EpochProcessor(task), outputMode="Update")

    def epoch(self) -> pd.DataFrame:
        """Run one epoch, and return its rows."""
        self._batch += 1
        return self.testInPandas("0", pd.DataFrame({"shard": [0]}))


def test_a_loop_stays_in_memory_and_its_first_epoch_is_short(loops: list[NotedLoop]) -> None:
    """The first epoch takes a second, the others their whole length. Each has its own claim."""
    job = Job()
    for _ in range(3):
        job.epoch()
    (loop,) = loops
    assert [seconds for _, seconds in loop.epochs] == [1, 5, 5]
    assert [claim for claim, _ in loop.epochs] == [(3, number) for number in range(1, 4)]
    assert loop.settings.loop.transactional_id == "t-tallystream-aggregator-0"


def test_a_loop_goes_on_between_epochs(loops: list[NotedLoop]) -> None:
    """A thread runs it while Spark commits, and has ended before the next epoch begins."""
    job = Job()
    for _ in range(2):
        job.epoch()
        while loops[0].calls[-1] != "between":
            time.sleep(0.001)
    assert loops[0].calls == ["epoch", "between", "ended", "epoch", "between"]


def test_an_epoch_whose_state_was_not_committed_runs_again_shortly(loops: list[NotedLoop]) -> None:
    """A lasting reason, as a full disk, is known after seconds, and not after several epochs."""
    job = Job()
    job.epoch()
    loops[0].current = False
    job.epoch()
    assert [seconds for _, seconds in loops[0].epochs] == [1, 1]


def test_a_failed_epoch_leaves_no_loop_in_memory(loops: list[NotedLoop]) -> None:
    """A loop that was fenced is never used again."""
    job = Job()
    job.epoch()
    NotedLoop.failures.append(FencedError("x"))
    with pytest.raises(FencedError):
        job.epoch()
    job.epoch()
    assert [len(loop.epochs) for loop in loops] == [1, 1]


def test_a_new_generation_begins_with_a_new_loop(loops: list[NotedLoop]) -> None:
    """The loop of the query that ended is closed."""
    Job(3).epoch()
    Job(4).epoch()
    assert [(loop.closed, loop.epochs[0][0][0]) for loop in loops] == [(True, 3), (False, 4)]


def test_the_row_of_an_epoch_is_read_from_the_progress() -> None:
    """Spark's progress has the rows as JSON."""
    frame = Job().epoch()
    assert list(frame.columns) == EPOCH_ROW.names
    (row,) = rows_of({"observedMetrics": {"epochs": Row(shards=list(frame["epoch"]))}})
    assert row == EpochRow(0, steps=3, records=2, sums=4, rows=5, state_bytes=9, positions={"t-metrics": {"1": 7}})


def test_a_batch_without_rows_is_no_error() -> None:
    """Spark's progress lacks them if the batch's task had ended before."""
    assert rows_of({"observedMetrics": {}}) == []


def test_a_task_s_process_collects_nothing_but_after_an_epoch() -> None:
    """PySpark's worker collects after each task, and would search the table. What an epoch leaves is frozen."""
    Job().epoch()
    assert not gc.isenabled()
    assert gc.get_freeze_count() > 1000


def test_a_stop_file_is_seen_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer may be as old as `CHECK_EVERY_S`."""
    monkeypatch.setattr(module, "CHECK_EVERY_S", 0.0)
    stopped = StopFile(str(tmp_path / "stop"))
    assert not stopped()
    (tmp_path / "stop").touch()
    assert stopped()


def test_a_worker_without_its_parent_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task whose Spark is gone holds nothing open."""
    codes: list[int] = []
    stopped = StopFile("/none")
    monkeypatch.setattr(os, "getppid", lambda: 1)
    monkeypatch.setattr(os, "_exit", codes.append)
    stopped()
    assert codes == [1]


def test_the_epochs_that_load_spark_s_classes_use_the_state() -> None:
    """The archive must have the classes of the state, and of the row that each epoch returns."""
    tester = TwsTester(EpochProcessor(store_entry), outputMode="Update")
    for _ in range(2):
        (row,) = tester.testInPandas("0", pd.DataFrame({"shard": [0]}))["epoch"]
        assert json.loads(row)["shard"] == 0
    assert tester.peekMapState("log", "0") == {(1,): (b"entry",)}


def test_a_processor_is_unpickled_without_what_its_task_imports() -> None:
    """Spark does so in a process that only asks for the states, and the start of a query waits for it."""
    code = "import pickle, sys; pickle.load(sys.stdin.buffer); print('tallystream_aggregator.stream' in sys.modules)"
    pickled = pickle.dumps(EpochProcessor(store_entry))
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=True)
    assert done.stdout == b"False\n"


def test_what_workers_import_ahead_exists() -> None:
    """PySpark's module is not public, so an upgrade may rename it (docs/architecture.md)."""
    assert list(import_modules([1])) == [1]
