"""The profile assigns each sampled stack to a part of a batch."""

from __future__ import annotations

import pytest

from benchmarks.aggregator.profile import part_of

SPARK = "org.apache.spark."


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        ((), "other: ?"),
        (("java.util.HashMap.get",), "other: java.util.HashMap.get"),
        (("java.util.HashMap.get", SPARK + "sql.catalyst.trees.TreeNode.map"), "planning"),
        ((SPARK + "sql.execution.streaming.state.RocksDB.commit",), "state: RocksDB and its changelog"),
        (
            (SPARK + "sql.execution.python.ArrowOutput.write", SPARK + "executor.Executor.run"),
            "Python: rows to and from",
        ),
        ((SPARK + "scheduler.DAGScheduler.submit", SPARK + "sql.execution.SparkPlan.execute"), "scheduling"),
        ((SPARK + "sql.execution.streaming.checkpointing.OffsetSeqLog.add",), "log: offsets and commits"),
    ],
)
def test_the_topmost_known_frame_decides(frames: tuple[str, ...], part: str) -> None:
    """Its callers, and frames of Java's own library above it, make no difference."""
    assert part_of(frames).startswith(part)
