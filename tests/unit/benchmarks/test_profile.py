"""Which part of a batch a sampled stack belongs to."""

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
def test_the_frame_next_to_the_top_that_is_known_decides(frames: tuple[str, ...], part: str) -> None:
    """What calls it does not matter, nor do frames of Java's own library above it."""
    assert part_of(frames).startswith(part)
