"""Why a query failed, as one sentence."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tallystream_aggregator.spark.errors import sentence

CHECKPOINT = Path("/data/aggregate")
SAID = "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing state store files.\n\nJVM stacktrace:\norg.apache.x"


@pytest.mark.parametrize(("fuller", "named"), [("/data/aggregate", "/data/aggregate"), ("", tempfile.gettempdir())])
def test_a_full_disk_is_named_with_its_remedy(fuller: str, named: str) -> None:
    """Deep in the causes somebody had no space: the sentence names the folder whose disk is the fuller one."""
    trace = "org.apache.hadoop.fs.FSError\n at x\nCaused by: java.io.IOException: No space left on device\n at y"
    said = sentence(SAID, trace, CHECKPOINT, free=lambda folder: int(folder != (fuller or named)))
    assert named in said
    assert "is full" in said
    assert "make room there" in said


def test_any_other_failure_is_in_spark_s_words_without_its_stack() -> None:
    """On one line, and no longer than a line may be."""
    assert sentence(SAID, "at x", CHECKPOINT) == (
        "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing state store files."
    )
    assert len(sentence("x " * 9000, "", CHECKPOINT)) == 2000


def test_lost_records_are_named_with_their_remedy() -> None:
    """Spark's advice about an option of its own becomes ours."""
    said = "Some data may have been lost.\nReason: The topic was deleted.\nset failOnDataLoss to false\n"
    assert sentence(said, "", CHECKPOINT) == (
        "records were deleted before they were read: The topic was deleted. "
        "To continue without them: --on-data-loss continue."
    )


@pytest.mark.parametrize(
    "said",
    [
        "[CANNOT_LOAD_STATE_STORE.X] An error.",
        "Unexpected end-of-input in field name",
        "Checksum error: file:/c/commits/1",
        "Checksum file not a length multiple of checksum size in file:/c/offsets/5 at 0 checksumpos: 8 sumLenread: 2",
    ],
)
def test_a_checkpoint_that_can_not_be_read_is_named_with_its_remedy(said: str) -> None:
    """Spark's words say neither which one, nor what to do."""
    text = sentence(said, "", CHECKPOINT)
    assert text.startswith(f"the checkpoint {CHECKPOINT} can't be read ({said}); ")
    assert "tallystream rebuild" in text


def test_what_fails_while_a_log_of_the_checkpoint_is_read_is_of_the_checkpoint() -> None:
    """Also in words that nobody has seen before."""
    trace = "at org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog.get(HDFSMetadataLog.scala:150)"
    assert "tallystream rebuild" in sentence("Invalid chunk", trace, CHECKPOINT)
    assert sentence("Invalid chunk", "", CHECKPOINT) == "Invalid chunk"


def test_a_checkpoint_that_is_not_there_yet_has_a_disk_too(tmp_path: Path) -> None:
    """The folder may not have been made when its disk is full."""
    assert "is full" in sentence("No space left on device", "", tmp_path / "data" / "checkpoint")


def test_records_lost_to_a_backlog_are_named_with_the_same_remedy() -> None:
    """Of the trace of a Python process that Spark hands on, the last line is what happened."""
    said = (
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed: latestOffset Traceback (most recent call last):\n"
        '  File "backlog.py", line 3, in latestOffset\n'
        "tallystream_aggregator.spark.catch_up.reader.LostRecordsError: topic m, partition 0: it is gone.\n"
        " SQLSTATE: 38000"
    )
    assert sentence(said, "", CHECKPOINT) == (
        "records were deleted before they were read: topic m, partition 0: it is gone. "
        "To continue without them: --on-data-loss continue."
    )


def test_of_a_python_trace_the_last_line_is_said() -> None:
    """What was raised, and what Spark was at; not every line of code on the way."""
    said = (
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when latestOffset: Traceback (most recent call last):\n"
        '  File "a.py", line 3, in ask\n    return self._ask()\ncimpl.KafkaException: KafkaError{code=_TRANSPORT}\n\n'
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
        '  File "b.py", line 4, in f\ntallystream.errors.TallystreamError: nothing was read.\n SQLSTATE: 38000'
    )
    assert sentence(said, "", CHECKPOINT) == (
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when latestOffset: "
        "tallystream.errors.TallystreamError: nothing was read."
    )
