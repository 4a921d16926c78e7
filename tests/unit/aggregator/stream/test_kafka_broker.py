"""What is asked of the brokers, and what is read from a partition."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from support.simulation.client import SimulatedSource
from support.simulation.direct import METRICS, ROWS, Direct
from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.stream.broker import (
    Bounds,
    BrokerError,
    Output,
    Place,
    RejectedError,
    StoppedError,
    UnavailableError,
    bounds_of,
)
from tallystream_aggregator.stream.kafka import broker as kafka
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.stream.kafka.calls import Timeouts
from tallystream_aggregator.stream.positions import lowest
from tallystream_aggregator.stream.reading import read_range

A, B = Place("in", 0), Place("in", 1)


class FakeAdmin:
    """An admin client of a broker with the topic `in`; `errors` come before the answers."""

    def __init__(self) -> None:
        self.errors: list[int] = []
        self.asked: list[int] = []
        self.timeouts: list[float] = []
        self.pauses: list[float] = []
        self.metadata = self.configs = 0
        self.times = "LogAppendTime"

    def list_topics(self, timeout: float) -> Any:
        """Return both partitions."""
        assert timeout <= kafka.METADATA_S
        self.timeouts.append(timeout)
        self.metadata += 1
        if self.errors and self.errors[0] == KafkaError._TRANSPORT:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return SimpleNamespace(topics={"in": SimpleNamespace(partitions={0: None, 1: None})})

    def list_offsets(
        self, asked: Mapping[TopicPartition, Any], *, isolation_level: IsolationLevel, request_timeout: float
    ) -> dict[TopicPartition, Future[Any]]:
        """Answer with the first error, or with offsets that say what was asked."""
        assert request_timeout > 0
        self.timeouts.append(request_timeout)
        self.asked.append(len(asked))
        return {one: self._answer(spec, isolation_level) for one, spec in asked.items()}

    def describe_configs(self, asked: Any, *, request_timeout: float) -> dict[Any, Future[Any]]:
        """Answer with the first error, or with the kind of the topic's times."""
        assert request_timeout > 0
        self.configs += len(asked)
        answer: Future[Any] = Future()
        if self.errors:
            answer.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        else:
            answer.set_result({"message.timestamp.type": SimpleNamespace(value=self.times)})
        return dict.fromkeys(asked, answer)

    def _answer(self, spec: Any, isolation: IsolationLevel) -> Future[Any]:
        answer: Future[Any] = Future()
        if self.errors:
            answer.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        else:
            stable = isolation == IsolationLevel.READ_COMMITTED
            of_time = 5 if spec not in (kafka._EARLIEST, kafka._LATEST) else None
            offset = of_time or (3 if spec is kafka._EARLIEST else 7 if stable else 9)
            answer.set_result(SimpleNamespace(offset=offset))
        return answer


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """The admin client of the broker."""
    fake = FakeAdmin()
    monkeypatch.setattr(kafka.clients, "admin", lambda _: fake)
    monkeypatch.setattr(kafka.time, "sleep", fake.pauses.append)
    return fake


def broker(**timeouts: Any) -> KafkaBroker:
    """Return what is tested."""
    return KafkaBroker({"bootstrap.servers": "b:1"}, Selection("in"), "g", Timeouts(**timeouts))


@pytest.mark.parametrize("code", [KafkaError.LEADER_NOT_AVAILABLE, KafkaError._NOENT])
def test_a_partition_without_a_leader_is_asked_again(admin: FakeAdmin, code: int) -> None:
    """Only that one, after a pause, until it has a leader."""
    admin.errors = [code]
    assert broker().bounds([A, B]) == {A: Bounds(3, 7, 9), B: Bounds(3, 7, 9)}
    assert admin.asked == [2, 1, 2, 2]
    assert admin.pauses == [kafka.PAUSE_S]


def test_the_ends_are_known_again_after_a_restart_of_the_broker(admin: FakeAdmin) -> None:
    """The client would ask for the leaders of before. So it asks for the topics first."""
    admin.errors = [KafkaError.FENCED_LEADER_EPOCH]
    assert broker().ends([A]) == {A: 9}
    assert admin.metadata == 1
    assert broker().offsets_at([A], 1_700_000_000_000) == {A: 5}


def test_what_is_opened_has_the_options_of_the_broker(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source has the group, for authorization, and sees open transactions unless it is asked for committed ones."""
    consumers: list[dict[str, Any]] = []
    producers: list[dict[str, Any]] = []
    monkeypatch.setattr(kafka.clients, "consumer", consumers.append)
    monkeypatch.setattr(kafka.clients, "producer", lambda options: producers.append(options) or MagicMock())
    one = broker()
    one.source()
    one.source(committed=True)
    one.writer("id")
    assert [options["group.id"] for options in consumers] == ["g", "g"]
    assert [options["isolation.level"] for options in consumers] == ["read_uncommitted", "read_committed"]
    assert {options["bootstrap.servers"] for options in [*consumers, *producers]} == {"b:1"}
    assert [options["transactional.id"] for options in producers] == ["id"]


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
    assert max(admin.timeouts) <= kafka.PAUSE_S


def test_the_topics_are_asked_again_after_a_lost_connection(admin: FakeAdmin) -> None:
    """A broker that restarts closes it."""
    admin.errors = [KafkaError._TRANSPORT] * 2
    assert broker().partitions() == {"in": [0, 1]}
    assert admin.pauses == [kafka.PAUSE_S] * 2


def test_a_topic_that_is_found_later_needs_append_times(admin: FakeAdmin) -> None:
    """A pattern may match it. Otherwise the clock of the partition would be its producers'. Each is asked for once."""
    one = broker()
    assert [one.partitions(), one.partitions()] == [{"in": [0, 1]}] * 2
    assert admin.configs == 1
    admin.times = "CreateTime"
    with pytest.raises(ConfigError, match=r"message.timestamp.type of the topic in.*CreateTime.*LogAppendTime"):
        broker().partitions()
    admin.errors = [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(RejectedError, match="the configuration of a topic can't be read"):
        broker().partitions()


def written(number: int) -> Direct:
    """Return a cluster with so many records in one transaction."""
    direct = Direct()
    direct.broker.writer("id").commit([Output(ROWS, b"%d" % n, b"row") for n in range(number)])
    direct.flush()
    return direct


@pytest.mark.parametrize(("place", "end"), [(Place("other", 0), 3), (ROWS, 5)])
def test_records_that_were_there_a_moment_ago_are_not_taken_for_none(place: Place, end: int) -> None:
    """The partition is missing in an answer, or shorter. An older positions row would be taken for the newest one."""
    direct = written(3)
    with pytest.raises(BrokerError, match=r"sends nothing|no partition|were deleted"):
        list(read_range(direct.broker, place, Bounds(0, end, end)))


def test_deleted_records_are_an_error() -> None:
    """They were there when the bounds were asked."""
    direct = written(3)
    direct.cluster.partition(ROWS).delete_before(2)
    with pytest.raises(BrokerError, match="deleted before they were read"):
        list(read_range(direct.broker, ROWS, Bounds(0, 4, 4)))


def test_a_partition_that_sends_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader says that it has the records. A stop ends the wait as well."""
    direct = written(3)

    def read(*_: object) -> list[Any]:
        direct.pass_time(0.1)
        return []

    monkeypatch.setattr(SimulatedSource, "read", read)
    began_s = direct.monotonic()
    with pytest.raises(BrokerError, match="sends nothing"):
        list(read_range(direct.broker, ROWS, bounds_of(direct.broker, ROWS)))
    assert 5 < direct.monotonic() - began_s < 20
    with pytest.raises(StoppedError):
        list(read_range(direct.broker, ROWS, bounds_of(direct.broker, ROWS), lambda: True))


def test_an_open_transaction_is_read_though_one_read_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records are after the stable end."""
    direct = written(3)
    epoch = direct.cluster.open_writer("other") or 0
    direct.cluster.add_partitions("other", epoch, [ROWS])
    direct.cluster.produce("other", epoch, ROWS, [(b"key", b"row")])
    read, empty = SimulatedSource.read, [list[Any]()]
    monkeypatch.setattr(SimulatedSource, "read", lambda *args: empty.pop() if empty else read(*args))
    found = read_range(direct.broker, ROWS, Bounds(0, 4, 5), committed=False)
    assert [record[0] for record in found] == [0, 1, 2, 4]


PLACES = st.sampled_from([METRICS, ROWS])


@given(st.lists(st.dictionaries(PLACES, st.integers(0, 9))))
def test_the_lowest_positions_are_those_that_all_have_reached(each: list[dict[Place, int]]) -> None:
    """A partition that one of them does not read has none. Of nobody there are none."""
    found = lowest(each)
    for place in (METRICS, ROWS):
        known = [one[place] for one in each if place in one]
        assert found.get(place) == (min(known) if each and len(known) == len(each) else None)
