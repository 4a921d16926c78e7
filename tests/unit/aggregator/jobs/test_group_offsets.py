"""The commits to a consumer group without members, on a group in memory."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream_aggregator.jobs.aggregate.group_offsets import GroupCommitter
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.stream.broker import Place


class Group:
    """A consumer that notes the commits. They fail with `error` if it is set."""

    def __init__(self) -> None:
        self.commits: list[dict[int, int]] = []
        self.error: KafkaException | None = None

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        """Store the offsets."""
        assert not asynchronous
        if self.error is not None:
            raise self.error
        self.commits.append({at.partition: at.offset for at in offsets})


def test_only_positions_that_moved_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit sets all, whatever an earlier table has left; a failed one is repeated by the next call."""
    group = Group()
    monkeypatch.setattr(clients, "consumer", lambda *_, **__: group)
    committer = GroupCommitter({}, "aggregator")
    committer.commit({Place("metrics", 0): 10, Place("metrics", 1): 0})
    committer.commit({Place("metrics", 0): 10, Place("metrics", 1): 0})
    group.error = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
    with pytest.raises(KafkaException):
        committer.commit({Place("metrics", 0): 11, Place("metrics", 1): 0})
    group.error = None
    committer.commit({Place("metrics", 0): 11, Place("metrics", 1): 0})
    assert group.commits == [{0: 10, 1: 0}, {0: 11}]
