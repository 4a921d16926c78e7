"""The reason that is given when a query failed."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException

from tallystream_aggregator.spark.runner import failure_reason, stack_traces

CHECKPOINT = Path("/data/aggregate")
MESSAGE = "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing state store files.\n\nJVM stacktrace:\norg.apache.x"


@pytest.mark.parametrize(("full", "named"), [("/data/aggregate", "/data/aggregate"), ("", tempfile.gettempdir())])
def test_a_full_disk_is_named_with_a_remedy(full: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the causes has the system's message. The reason names the folder whose disk has less space."""
    full = full or named
    monkeypatch.setattr(Path, "exists", lambda _path: True)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=int(str(path) != full)))
    traces = "org.apache.hadoop.fs.FSError\n at x\nCaused by: java.io.IOException: No space left on device\n at y"
    reason = failure_reason(MESSAGE, traces, CHECKPOINT)
    assert named in reason
    assert "is full" in reason
    assert "free some space" in reason


def test_the_checkpoint_of_a_full_disk_may_be_missing(tmp_path: Path) -> None:
    """The disk may be full before the folder is created."""
    assert "is full" in failure_reason("No space left on device", "", tmp_path / "data" / "checkpoint")


def test_another_failure_has_spark_s_message_without_the_stack() -> None:
    """It is one line with a limited length."""
    assert failure_reason(MESSAGE, "at x", CHECKPOINT) == (
        "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing state store files."
    )
    assert len(failure_reason("x " * 9000, "", CHECKPOINT)) == 2000


@pytest.mark.parametrize(
    ("message", "lost"),
    [
        (
            "Some data may have been lost.\nReason: The topic was deleted.\nset failOnDataLoss to false\n",
            "The topic was deleted.",
        ),
        (
            (
                "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed: latestOffset Traceback (most recent call last):\n"
                '  File "source.py", line 3, in latestOffset\n'
                "tallystream_aggregator.stream.broker.LostRecordsError: topic m, partition 0: it is gone.\n"
                " SQLSTATE: 38000"
            ),
            "topic m, partition 0: it is gone.",
        ),
    ],
    ids=["live", "catch-up"],
)
def test_lost_records_are_named_with_a_remedy(message: str, lost: str) -> None:
    """The remedy is our option instead of Spark's, in both modes."""
    assert failure_reason(message, "", CHECKPOINT) == (
        f"records were deleted before they were read: {lost} To continue without them: --on-data-loss continue."
    )


@pytest.mark.parametrize(
    "message",
    [
        "[CANNOT_LOAD_STATE_STORE.X] An error.",
        "Unexpected end-of-input in field name",
        "Checksum error: file:/c/commits/1",
        "Checksum file not a length multiple of checksum size in file:/c/offsets/5 at 0 checksumpos: 8 sumLenread: 2",
    ],
)
def test_an_unreadable_checkpoint_is_named_with_a_remedy(message: str) -> None:
    """Spark's message has neither."""
    reason = failure_reason(message, "", CHECKPOINT)
    assert reason.startswith(f"the checkpoint {CHECKPOINT} can't be read ({message}); ")
    assert "tallystream rebuild" in reason


def test_a_failure_in_spark_s_reader_of_logs_means_an_unreadable_checkpoint() -> None:
    """The stack trace shows it for any message."""
    trace = "at org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog.get(HDFSMetadataLog.scala:150)"
    assert "tallystream rebuild" in failure_reason("Invalid chunk", trace, CHECKPOINT)
    assert failure_reason("Invalid chunk", "", CHECKPOINT) == "Invalid chunk"


def test_a_python_traceback_is_reduced_to_its_exception() -> None:
    """The lines of code are left out."""
    message = (
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when latestOffset: Traceback (most recent call last):\n"
        '  File "a.py", line 3, in ask\n    return self._ask()\ncimpl.KafkaException: KafkaError{code=_TRANSPORT}\n\n'
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
        '  File "b.py", line 4, in f\ntallystream.errors.TallystreamError: nothing was read.\n SQLSTATE: 38000'
    )
    assert failure_reason(message, "", CHECKPOINT) == (
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when latestOffset: "
        "tallystream.errors.TallystreamError: nothing was read."
    )


def test_the_stack_traces_of_pyspark_s_exceptions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their attributes are private, so an upgrade of PySpark may rename them (docs/cluster.md)."""
    monkeypatch.setattr(SparkContext, "_jvm", object())
    monkeypatch.setattr(CapturedException, "_log_exception", lambda _failure: None)
    failure = CapturedException(desc="the query failed", stackTrace="at a")
    assert failure._cause is None
    failure._cause = CapturedException(desc="no space", stackTrace="at b")
    assert stack_traces(failure) == "at a\nat b"
