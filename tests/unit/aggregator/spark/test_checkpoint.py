"""The logs of Spark's checkpoint: finished batches, their offsets, and the plan of a running batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tallystream_aggregator.spark.checkpoint import (
    CheckpointError,
    Finished,
    finished_batches,
)

if TYPE_CHECKING:
    from pathlib import Path


def _write(checkpoint: Path, batch: int, *offsets: int, committed: bool = True, version: str = "v1") -> None:
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1000 + batch, "conf": {}})
    source = json.dumps({"metrics": dict(enumerate(offsets))})
    (checkpoint / "offsets" / str(batch)).write_text(f"{version}\n{metadata}\n{source}")
    if committed:
        (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_a_new_checkpoint_has_no_finished_batch(tmp_path: Path) -> None:
    """Its directory does not exist."""
    assert finished_batches(tmp_path / "new") == []


def test_a_planned_batch_is_not_finished(tmp_path: Path) -> None:
    """A crash interrupted it, so only the offset log has it."""
    _write(tmp_path, 0, 5)
    _write(tmp_path, 1, 9, committed=False)
    assert [(one.batch, one.end) for one in finished_batches(tmp_path)] == [(0, {"metrics": {"0": 5}})]


def test_batches_are_in_numeric_order(tmp_path: Path) -> None:
    """Batch 10 follows batch 9 and starts at its end. The start of the first one is unknown."""
    for batch in range(11):
        _write(tmp_path, batch, batch * 3)
    batches = finished_batches(tmp_path)
    assert [batch.batch for batch in batches] == list(range(11))
    assert batches[0].start is None
    assert batches[10] == Finished(10, {"metrics": {"0": 27}}, {"metrics": {"0": 30}}, 1010)


def test_only_batches_after_the_given_one_are_returned(tmp_path: Path) -> None:
    """The first of them has its start, too."""
    for batch in range(4):
        _write(tmp_path, batch, batch)
    assert [(b.batch, b.start) for b in finished_batches(tmp_path, after=2)] == [(3, {"metrics": {"0": 2}})]


def test_files_that_spark_deletes_meanwhile_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark deletes the oldest files of a log after each batch. The checkpoint is healthy."""
    for batch in range(4):
        _write(tmp_path, batch, batch)
    read_text = type(tmp_path).read_text

    def delete_then_read(path: Path, encoding: str) -> str:
        for batch in (0, 1):
            (tmp_path / "offsets" / str(batch)).unlink(missing_ok=True)
        return read_text(path, encoding)

    monkeypatch.setattr(type(tmp_path), "read_text", delete_then_read)
    assert [(one.batch, one.start) for one in finished_batches(tmp_path)] == [(2, None), (3, {"metrics": {"0": 2}})]


def test_temporary_and_hidden_files_are_not_batches(tmp_path: Path) -> None:
    """Spark writes .N.crc and temporary files beside its logs."""
    _write(tmp_path, 0, 5)
    (tmp_path / "commits" / ".1.crc").write_bytes(b"\0")
    (tmp_path / "commits" / ".1.0d4.tmp").write_bytes(b"")
    assert [(one.batch, one.end) for one in finished_batches(tmp_path)] == [(0, {"metrics": {"0": 5}})]


@pytest.mark.parametrize("content", ["", "v1\n{}", 'v1\n{"batchTimestampMs":1}\n{"metrics"', "v1\nx\ny"])
def test_a_truncated_log_is_an_error_that_names_the_file(tmp_path: Path, content: str) -> None:
    """A damaged checkpoint is not read as an empty one."""
    _write(tmp_path, 0, 5)
    (tmp_path / "offsets" / "0").write_text(content)
    with pytest.raises(CheckpointError, match=r"offsets/0"):
        finished_batches(tmp_path)


def test_a_log_of_another_version_is_rejected(tmp_path: Path) -> None:
    """A later version of Spark may have changed its format."""
    _write(tmp_path, 0, 5, version="v2")
    with pytest.raises(CheckpointError, match="v2"):
        finished_batches(tmp_path)
