"""The commits to the query's consumer group, on a group in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.groups import GroupCommitter

if TYPE_CHECKING:
    from collections.abc import Mapping


class Group:
    """A consumer whose group has offsets. Commits fail with `error` if it is set."""

    def __init__(self, offsets: Mapping[int, int]) -> None:
        self.offsets = dict(offsets)
        self.error: KafkaException | None = None

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:  # noqa: ARG002
        """Return the group's offsets, -1001 for a partition without one."""
        return [TopicPartition(at.topic, at.partition, self.offsets.get(at.partition, -1001)) for at in partitions]

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        """Store the offsets."""
        assert not asynchronous
        if self.error is not None:
            raise self.error
        self.offsets.update({at.partition: at.offset for at in offsets})


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    """Return a group with offsets of partitions 0 and 1, those of an earlier table."""
    group = Group({0: 500, 1: 7})
    monkeypatch.setattr(clients, "consumer", lambda *_, **__: group)
    return group


def test_offsets_never_decrease(group: Group) -> None:
    """A restart repeats its last commit."""
    committer = GroupCommitter({}, "aggregator")
    assert committer.commit({"metrics": {"0": 10, "1": 9}}) == {"metrics": {"1": 9}}
    assert group.offsets == {0: 500, 1: 9}


def test_the_group_begins_where_a_new_table_begins(group: Group) -> None:
    """Otherwise lag tools would show the progress of the earlier table. Later commits only increase the offsets."""
    committer = GroupCommitter({}, "aggregator")
    committer.begin({"metrics": {"0": 0, "1": 0, "2": 0}})
    assert group.offsets == {0: 0, 1: 0, 2: 0}
    assert committer.commit({"metrics": {"0": 10, "1": 0}}) == {"metrics": {"0": 10}}


def test_a_beginning_that_was_not_committed_does_not_keep_the_earlier_offsets(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    """The table begins all the same, and a warning says so. The next commit sets the offsets."""
    group.error = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
    committer = GroupCommitter({}, "aggregator")
    committer.begin({"metrics": {"0": 0}})
    assert "offsets of the new table: not committed yet" in caplog.text
    group.error = None
    committer.commit({"metrics": {"0": 10}})
    assert group.offsets == {0: 10, 1: 7}
