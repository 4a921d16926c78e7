"""What a failure of the query is, by Spark's message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystream_aggregator.jobs.aggregate.failures import Failure, Remedy, failure_of

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
        ("tallystream_aggregator.stream.broker.FencedError: a newer task has it.", Remedy.FENCED),
        ("tallystream_aggregator.stream.broker.LostRecordsError: it is gone.", Remedy.STOP),
        ("tallystream.errors.TallystreamError: restore that topic.", Remedy.STOP),
    ],
)
def test_an_error_of_a_task_is_found_in_the_message_of_spark(error: str, remedy: Remedy) -> None:
    """A fenced task runs again while the lease is held. Other errors of ours stop the driver, with their sentence."""
    assert failure_of(QueryError(TASK.format(error)), CHECKPOINT) == Failure(remedy, error.split(": ", 1)[1])


@pytest.mark.parametrize(
    ("message", "traces", "remedy"),
    [
        ("Python worker exited unexpectedly (crashed)", "", Remedy.AGAIN),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error", "", Remedy.SET_ASIDE),
        ("Unexpected end-of-input", "", Remedy.SET_ASIDE),
        ("There are [1] sources in the checkpoint offsets and now there are [4] sources", "", Remedy.SET_ASIDE),
        ("assertion failed", "at org.apache.HDFSMetadataLog.get(HDFSMetadataLog.scala:1)", Remedy.SET_ASIDE),
        ("[CANNOT_LOAD_STATE_STORE] x", "java.io.IOException: No space left on device", Remedy.STOP),
        ("[CANNOT_LOAD_STATE_STORE] x", "java.nio.file.AccessDeniedException: /data", Remedy.STOP),
        ("/data/checkpoint/offsets/0 (Permission denied)", "", Remedy.STOP),
    ],
)
def test_only_a_damaged_checkpoint_is_set_aside(message: str, traces: str, remedy: Remedy) -> None:
    """A full disk or a missing right would also make a new checkpoint fail. Anything else is tried again."""
    assert failure_of(QueryError(message, traces), Path("/tmp")).remedy is remedy
