"""Queries of the loop, with an admin client in memory: what is missing, what has no leader, and what is not allowed."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition

from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.stream.broker import Bounds, Place, RejectedError, UnavailableError
from tallystream_aggregator.stream.kafka import broker as kafka
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.stream.kafka.calls import Timeouts

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = Place("in", 0), Place("in", 1)


class FakeAdmin:
    """An admin client of a broker with the topic `in`; `errors` come before the answers."""

    def __init__(self) -> None:
        self.errors: list[int] = []
        self.asked: list[int] = []
        self.metadata = 0

    def list_topics(self, timeout: float) -> Any:
        """Return both partitions."""
        assert timeout <= kafka.METADATA_S
        self.metadata += 1
        if self.errors and self.errors[0] == KafkaError._TRANSPORT:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return SimpleNamespace(topics={"in": SimpleNamespace(partitions={0: None, 1: None})})

    def list_offsets(
        self, asked: Mapping[TopicPartition, Any], *, isolation_level: IsolationLevel, request_timeout: float
    ) -> dict[TopicPartition, Future[Any]]:
        """Answer with the first error, or with offsets that say what was asked."""
        assert request_timeout > 0
        self.asked.append(len(asked))
        return {one: self._answer(spec, isolation_level) for one, spec in asked.items()}

    def _answer(self, spec: Any, isolation: IsolationLevel) -> Future[Any]:
        answer: Future[Any] = Future()
        if self.errors:
            answer.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        else:
            stable = isolation == IsolationLevel.READ_COMMITTED
            answer.set_result(SimpleNamespace(offset=3 if spec is kafka._EARLIEST else 7 if stable else 9))
        return answer


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """The admin client of the broker."""
    fake = FakeAdmin()
    monkeypatch.setattr(kafka.clients, "admin", lambda _: fake)
    monkeypatch.setattr(kafka, "PAUSE_S", 0.001)
    return fake


def broker(**timeouts: Any) -> KafkaBroker:
    """Return what is tested."""
    return KafkaBroker({"bootstrap.servers": "b:1"}, Selection("in"), "g", Timeouts(**timeouts))


@pytest.mark.parametrize("code", [KafkaError.LEADER_NOT_AVAILABLE, KafkaError._NOENT])
def test_a_partition_without_a_leader_is_asked_again(admin: FakeAdmin, code: int) -> None:
    """Only that one, until it has a leader."""
    admin.errors = [code]
    assert broker().bounds([A, B]) == {A: Bounds(3, 7, 9), B: Bounds(3, 7, 9)}
    assert admin.asked == [2, 1, 2, 2]


def test_the_ends_are_known_again_after_a_restart_of_the_broker(admin: FakeAdmin) -> None:
    """The client would ask for the leaders of before. So it asks for the topics first."""
    admin.errors = [KafkaError.FENCED_LEADER_EPOCH]
    assert broker().ends([A]) == {A: 9}
    assert admin.metadata == 1


def test_a_partition_that_is_missing_is_left_out(admin: FakeAdmin) -> None:
    """It is not in the metadata, or it was deleted a moment ago."""
    assert broker().bounds([A, Place("in", 7), Place("other", 0)]) == {A: Bounds(3, 7, 9)}
    admin.errors = [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert broker().bounds([A, B]) == {B: Bounds(3, 7, 9)}
    assert broker().bounds([]) == {}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.LEADER_NOT_AVAILABLE, UnavailableError),
        (KafkaError._TIMED_OUT, UnavailableError),
        (KafkaError._TRANSPORT, UnavailableError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, RejectedError),
    ],
)
def test_an_error_that_stays_is_raised(admin: FakeAdmin, code: int, kind: type[Exception]) -> None:
    """The time limit is for all attempts."""
    admin.errors = [code] * 2
    with pytest.raises(kind, match=r"^broker b:1: .* can't be read: ") as raised:
        broker(query_s=0.0).bounds([A])
    assert type(raised.value) is kind


def test_the_topics_are_asked_again_after_a_lost_connection(admin: FakeAdmin) -> None:
    """A broker that restarts closes it."""
    admin.errors = [KafkaError._TRANSPORT] * 2
    assert broker().partitions() == {"in": [0, 1]}
