"""The driver: its query, its lease, and what ends it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException

from tallystream.errors import TallystreamError
from tallystream_aggregator.jobs.aggregate import driver as module
from tallystream_aggregator.jobs.aggregate.driver import Driver
from tallystream_aggregator.jobs.aggregate.failures import Failure, Remedy, checkpoint_errors, failure_of, stack_traces
from tallystream_aggregator.jobs.aggregate.settings import AggregateSettings
from tallystream_aggregator.jobs.aggregate.table_start import TableStart
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.kafka.lease import LeaseError
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.topic_selection import Offsets
from tallystream_aggregator.shutdown import StopRequest
from tallystream_aggregator.stream.broker import BrokerError, FencedError
from tallystream_aggregator.table.sum_tags import SumTags

FENCED = "tallystream_aggregator.stream.broker.FencedError: a newer task has it."
LOST = "tallystream_aggregator.stream.broker.LostRecordsError: it is gone."
AWAY = "tallystream_aggregator.stream.broker.UnavailableError: no answer."
CRASHED = "Python worker exited unexpectedly (crashed)"


class ScriptedSystem:
    """Stands in for Spark, the lease and the ledger. Each start of the query ends with the next failure of `script`.

    After the last one the query runs until the stop that it requests itself. `finishes` are the numbers of the starts,
    from 0, that finish an epoch before they fail.
    """

    def __init__(self, script: list[str], finishes: tuple[int, ...] = ()) -> None:
        self.script, self.finishes = script, finishes
        self.generations: list[int] = []
        self.stop_files: list[bool] = []
        self.stop = StopRequest()
        self.now = 0
        self.batch: int | None = None
        self.held, self.takes_fail = True, list[Exception]()
        self.stopped = False
        self.changes: list[Offsets] = []
        self.changes_fail: list[Exception] = []

    # The query.

    def start_query(self, _session: object, processor: Any, *_: object) -> ScriptedSystem:
        """Start the query."""
        self.generations.append(processor._run._settings.generation)
        self.stopped = False
        self._fails = self.script.pop(0) if self.script else None
        self.batch = 0 if len(self.generations) - 1 in self.finishes else None
        self.stop_files.append(Path(processor._run._settings.stop_file).exists())
        if self._fails is None:
            self.stop.set()
        return self

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        """Whether it runs."""
        return self._fails is None and not self.stopped

    def exception(self) -> Exception | None:
        """Return why it ended."""
        return None if self._fails is None else RuntimeError(self._fails)

    # The lease, the generations, and what follows the query.

    def check(self) -> None:
        """Keep the lease."""

    def require_newest(self) -> None:
        """Find another aggregator, unless the broker is away."""
        if self.takes_fail:
            raise self.takes_fail.pop()
        raise LeaseError("another aggregator took over")

    def take(self, _opened: object) -> int:
        """Take a generation."""
        self.now += 1
        if self.takes_fail:
            raise self.takes_fail.pop()
        return self.now

    def change(self, row: LedgerRow) -> None:
        """Append a row to the ledger, or fail."""
        if self.changes_fail:
            raise self.changes_fail.pop()
        self.changes.append(row.end)

    is_ready, is_done = False, False

    @property
    def positions(self) -> Offsets:
        """The positions of the last epoch: each start has one."""
        return {"metrics": {"0": len(self.generations)}}

    def follow(self, *_: object, **__: object) -> None:
        """Do nothing."""

    reset = look = follow


def run(script: ScriptedSystem, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a driver on the scripted system."""
    monkeypatch.setattr(module, "start_query", script.start_query)
    monkeypatch.setattr(module, "finish", lambda *_, **__: setattr(script, "stopped", True))
    monkeypatch.setattr(module, "MIN_BACK_OFF_S", 0.001)
    checkpoint.mkdir(exist_ok=True)
    return Driver(
        None,  # type: ignore[arg-type]
        AggregateSettings(Cluster("b:9092"), checkpoint),
        None,  # type: ignore[arg-type]
        TableStart({}, 1, SumTags()),
        lease=script,  # type: ignore[arg-type]
        generations=script,  # type: ignore[arg-type]
        watch=script,  # type: ignore[arg-type]
        stop=script.stop,
    ).run()


def test_a_fenced_query_starts_again_in_a_new_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So does one whose broker is away. Both as often as it takes, while the lease is held. The checkpoint stays."""
    system = ScriptedSystem([FENCED, AWAY] * 4)
    checkpoint = tmp_path / "checkpoint"
    assert run(system, checkpoint, monkeypatch) == 0
    assert system.generations == list(range(1, 10))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_the_ledger_has_the_positions_of_each_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the broker does not answer, the row of the next epoch makes up for it, and nothing ends."""
    system = ScriptedSystem([FENCED, AWAY, AWAY])
    system.changes_fail = [BrokerError("no answer")]
    assert run(system, tmp_path / "checkpoint", monkeypatch) == 0
    assert system.changes == [{"metrics": {"0": start}} for start in (2, 3, 4)]


def test_an_error_for_a_person_ends_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is the sentence of the task's error, which has the remedy."""
    system = ScriptedSystem([CRASHED, LOST])
    with pytest.raises(TallystreamError, match=r"^query aggregate: it is gone\.$"):
        run(system, tmp_path / "checkpoint", monkeypatch)
    assert system.generations == [1, 2]


def test_a_checkpoint_that_spark_cannot_use_is_set_aside_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is after three failures. If the empty one can't be used either, something else is wrong."""
    system = ScriptedSystem([CRASHED] * 20)
    with pytest.raises(TallystreamError, match="crashed"):
        run(system, tmp_path / "checkpoint", monkeypatch)
    assert len(system.generations) == 6
    assert sorted(path.name.partition("-")[0] for path in tmp_path.iterdir()) == ["checkpoint", "checkpoint.damaged"]


def test_a_checkpoint_is_not_set_aside_without_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another aggregator has taken over, and uses it."""
    system = ScriptedSystem([CRASHED] * 3)
    monkeypatch.setattr(system, "check", lambda: setattr(system, "held", len(system.generations) < 3))
    with pytest.raises(LeaseError):
        run(system, tmp_path / "checkpoint", monkeypatch)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_checkpoint_is_set_aside_again_after_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished epoch shows that the new one was good."""
    system = ScriptedSystem([CRASHED] * 6, finishes=(3,))
    assert run(system, tmp_path / "checkpoint", monkeypatch) == 0
    assert len(list(tmp_path.iterdir())) == 3
    assert len(system.generations) == 7


def test_a_generation_is_tried_again_while_the_lease_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation whose commit is unknown counts as taken: it may be in the ledger."""
    system = ScriptedSystem([])
    system.takes_fail = [BrokerError("no answer"), FencedError("another one")]
    assert run(system, tmp_path / "checkpoint", monkeypatch) == 0
    assert system.generations == [3]


def test_the_file_of_a_stop_before_does_not_stop_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that was killed while it stopped left it, and generations begin at 1 again when all topics were deleted.

    Every epoch would end at once, and nothing would be published.
    """
    system = ScriptedSystem([])
    module.stop_path(tmp_path / "checkpoint", 1).touch()
    run(system, tmp_path / "checkpoint", monkeypatch)
    assert system.stop_files == [False]


class EndingQuery:
    """A query whose second look shows the epoch that has seen the request to stop. It is also what looks."""

    def __init__(self, stop_file: Path, *, ready: bool) -> None:
        self._stop_file, self.looks, self.isActive = stop_file, 0, True
        self.is_ready = ready

    @property
    def stopped(self) -> bool:
        """Whether the last epoch saw the request."""
        return self.looks > 1 and self._stop_file.exists()

    def look(self, _query: object) -> None:
        """Look."""
        self.looks += 1

    def stop(self) -> None:
        """End."""
        self.isActive = False


@pytest.mark.parametrize("ready", [True, False])
def test_a_stop_waits_for_the_last_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready: bool) -> None:
    """So what is published is stored. Loops that make their tables again have published nothing, and are left alone."""
    query: Any = EndingQuery(tmp_path / "stop", ready=ready)
    module.finish(query, tmp_path / "stop", query)
    assert (query.looks, query.isActive) == (2, not ready)
    monkeypatch.setattr(module, "STEP_S", 0.0)
    late: Any = EndingQuery(tmp_path / "none", ready=ready)
    module.finish(late, tmp_path / "none", late)
    assert late.looks == (2 if ready else 0)


def test_without_the_lease_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver ends as soon as the ledger says that another one has taken over."""
    system = ScriptedSystem([])
    system.held, system.now, system.takes_fail = False, 4, [BrokerError("no answer")]
    with pytest.raises(LeaseError):
        run(system, tmp_path / "checkpoint", monkeypatch)
    assert not system.generations
    assert not system.takes_fail


def test_a_driver_that_has_tried_no_generation_waits_for_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the newest generation, of an aggregator before it, for that of a successor."""
    system, checks = ScriptedSystem([]), list[None]()

    def check() -> None:
        checks.append(None)
        system.held = len(checks) > 2

    monkeypatch.setattr(system, "check", check)
    assert run(system, tmp_path / "checkpoint", monkeypatch) == 0
    assert system.generations == [1]


CHECKPOINT = Path("/data/checkpoint")
TASK = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: "
    "Task 0 in stage 2.0 failed 4 times: org.apache.spark.api.python.PythonException: Traceback (most recent call "
    'last):\n  File "/x/loop.py", line 3, in run_epoch\n    raise\n{}\n\n\tat org.apache.spark.Here'
)


class QueryError(Exception):
    """As PySpark's, which has the stack traces of its causes."""

    def __init__(self, message: str, traces: str = "") -> None:
        super().__init__(message)
        self._stackTrace, self._cause = traces, None


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("tallystream_aggregator.stream.broker.FencedError: a newer task has it.", Remedy.AGAIN),
        ("tallystream_aggregator.stream.broker.BrokerError: no answer.", Remedy.AGAIN),
        ("tallystream_aggregator.stream.broker.LostRecordsError: it is gone.", Remedy.STOP),
        ("tallystream.errors.TallystreamError: restore that topic.", Remedy.STOP),
    ],
)
def test_an_error_of_a_task_is_found_in_the_message_of_spark(error: str, remedy: Remedy) -> None:
    """A fenced task runs again while the lease is held, and an outage ends. Others stop the driver."""
    assert failure_of(QueryError(TASK.format(error)), CHECKPOINT) == Failure(remedy, error.split(": ", 1)[1])


def test_the_reason_is_the_error_that_was_raised_and_not_its_cause() -> None:
    """Python's traceback has the cause first. Only the last error has the remedy."""
    error = (
        "tallystream_aggregator.stream.broker.BrokerError: the record is too large.\n\nThe above exception was the "
        "direct cause of the following exception:\n\nTraceback (most recent call last):\n"
        "tallystream_aggregator.stream.epochs.StepFailedError: correct what the broker refuses."
    )
    found = failure_of(QueryError(TASK.format(error)), CHECKPOINT)
    assert found == Failure(Remedy.STOP, "correct what the broker refuses.")


@pytest.mark.parametrize(
    ("message", "traces", "remedy"),
    [
        ("Python worker exited unexpectedly (crashed)", "", Remedy.RETRY),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error", "", Remedy.RETRY),
        ("There are [1] sources in the checkpoint offsets and now there are [4] sources", "", Remedy.RETRY),
        ("[CANNOT_LOAD_STATE_STORE] x", "java.io.IOException: No space left on device", Remedy.STOP),
        ("[CANNOT_LOAD_STATE_STORE] x", "java.nio.file.AccessDeniedException: /data", Remedy.STOP),
        ("/data/checkpoint/offsets/0 (Permission denied)", "", Remedy.STOP),
    ],
)
def test_a_full_disk_and_a_missing_right_are_no_damage(message: str, traces: str, remedy: Remedy) -> None:
    """They would also make a new checkpoint fail. Anything else is tried again."""
    assert failure_of(QueryError(message, traces), Path("/tmp")).remedy is remedy


def test_a_full_disk_is_named_with_a_remedy() -> None:
    """One of the causes has the system's message. It may be the disk of the checkpoint, or that of temporary files."""
    failure = failure_of(QueryError("x", "Caused by: java.io.IOException: No space left on device\n at y"), CHECKPOINT)
    assert str(CHECKPOINT) in failure.reason
    assert tempfile.gettempdir() in failure.reason
    assert "free some space" in failure.reason


def test_the_checkpoint_of_a_full_disk_may_be_missing(tmp_path: Path) -> None:
    """The disk may be full before the folder is created."""
    with pytest.raises(TallystreamError, match="is full"), checkpoint_errors(tmp_path / "data" / "checkpoint"):
        raise OSError("No space left on device")


def test_another_failure_has_spark_s_message_without_stacks() -> None:
    """It is one line with a limited length, with the exception of a Python traceback."""
    message = "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing.\n\nJVM stacktrace:\norg.apache.x"
    assert (
        failure_of(QueryError(message), CHECKPOINT).reason == "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing."
    )
    assert len(failure_of(QueryError("x " * 9000), CHECKPOINT).reason) == 2000
    raised = TASK.format("ValueError: nothing was read.")
    assert failure_of(QueryError(raised), CHECKPOINT).reason.endswith("PythonException: ValueError: nothing was read.")


def test_the_stack_traces_of_pyspark_s_exceptions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their attributes are private, so an upgrade of PySpark may rename them (docs/architecture.md)."""
    monkeypatch.setattr(SparkContext, "_jvm", object())
    monkeypatch.setattr(CapturedException, "_log_exception", lambda _failure: None)
    failure = CapturedException(desc="the query failed", stackTrace="at a")
    assert failure._cause is None
    failure._cause = CapturedException(desc="no space", stackTrace="at b")
    assert stack_traces(failure) == "at a\nat b"
