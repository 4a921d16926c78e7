"""What a failure of the query is, by Spark's message."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException

from tallystream.errors import TallystreamError
from tallystream_aggregator.jobs.aggregate.failures import (
    Failure,
    Remedy,
    checkpoint_errors,
    failure_of,
    stack_traces,
)

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
