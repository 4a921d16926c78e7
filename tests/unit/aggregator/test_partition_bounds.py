"""Offsets are asked for again while a partition has no leader; a script answers, as no broker does so on demand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream.testing import ManualClock
from tallystream_aggregator.kafka.partition_bounds import at_times, bounds_of

PLACE = TopicPartition("metrics", 0)


class Broker:
    """Gives the answers of a script, one at each request; an error is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def _answer(self, *_: object, timeout: float) -> Any:
        assert timeout > 0
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    get_watermark_offsets = offsets_for_times = _answer


def refusal(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def patient() -> dict[str, Any]:
    """Return a clock that goes on only while one sleeps."""
    clock = ManualClock()
    return {"timeout": 5.0, "clock": clock, "sleep": clock.advance}


def test_a_partition_without_a_leader_is_asked_again() -> None:
    """A topic that was made a moment ago is no reason to fail."""
    broker: Any = Broker(refusal(KafkaError.NOT_LEADER_FOR_PARTITION), refusal(KafkaError.OFFSET_NOT_AVAILABLE), (3, 7))
    assert bounds_of(broker, PLACE, **patient()) == (3, 7)


def test_a_time_is_asked_for_again_where_one_partition_has_no_leader() -> None:
    """Its offset of -1 would say that nothing was appended since, and records would be left out."""
    leaderless = SimpleNamespace(offset=-1, error=KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
    found = [TopicPartition("metrics", 0, 4)]
    broker: Any = Broker([leaderless], found)
    assert at_times(broker, [PLACE], **patient()) is found


def test_what_lasts_is_said_when_the_time_is_over() -> None:
    """A broker that never leads is an error in the end, not a wait for ever."""
    broker: Any = Broker(*[refusal(KafkaError.LEADER_NOT_AVAILABLE)] * 100)
    with pytest.raises(KafkaException, match="LEADER_NOT_AVAILABLE"):
        bounds_of(broker, PLACE, **patient())
    assert 10 < len(broker.answers) < 90


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_another_refusal_is_said_at_once(code: int) -> None:
    """A topic that is not there, or not for us, does not come by waiting."""
    broker: Any = Broker(refusal(code))
    with pytest.raises(KafkaException):
        bounds_of(broker, PLACE, **patient())
