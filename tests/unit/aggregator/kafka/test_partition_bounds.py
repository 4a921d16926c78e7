"""Queries for offsets, which are retried while a partition has no leader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream.testing import ManualClock
from tallystream_aggregator.kafka import partition_bounds
from tallystream_aggregator.kafka.partition_bounds import bounds_of

PARTITION = TopicPartition("metrics", 0)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(partition_bounds, "time", SimpleNamespace(monotonic=clock.monotonic, sleep=clock.advance))


class Broker:
    """A consumer whose requests have these results in order. An exception is raised."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)

    def _request(self, *_: object, timeout: float) -> Any:
        assert timeout > 0
        result = self.results.pop(0)
        if isinstance(result, KafkaException):
            raise result
        return result

    get_watermark_offsets = _request


def error(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def test_a_query_is_retried_while_a_partition_has_no_leader() -> None:
    """A topic that was just created does not fail the command."""
    broker: Any = Broker(error(KafkaError.NOT_LEADER_FOR_PARTITION), error(KafkaError.OFFSET_NOT_AVAILABLE), (3, 7))
    assert bounds_of(broker, PARTITION, timeout=5) == (3, 7)


def test_the_error_is_raised_after_the_timeout() -> None:
    """A partition that never has a leader is an error."""
    broker: Any = Broker(*[error(KafkaError.LEADER_NOT_AVAILABLE)] * 100)
    with pytest.raises(KafkaException, match="LEADER_NOT_AVAILABLE"):
        bounds_of(broker, PARTITION, timeout=5)
    assert 10 < len(broker.results) < 90


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_another_error_is_raised_at_once(code: int) -> None:
    """A missing topic or permission does not change by waiting."""
    broker: Any = Broker(error(code))
    with pytest.raises(KafkaException):
        bounds_of(broker, PARTITION, timeout=5)
