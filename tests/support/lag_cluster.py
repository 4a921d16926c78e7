"""A fake of Kafka's AdminClient: groups, committed offsets and ends in memory. Its requests can fail."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from tallystream_dashboards.lag.collector import kafka_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tallystream_dashboards.lag.offsets import PartitionId

UNAVAILABLE = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)


@dataclass
class Group:
    """A group's committed offsets, and the partitions assigned to its only member; none: the group has no member."""

    committed: dict[PartitionId, int]
    assigned: set[PartitionId] = field(default_factory=set)


class Cluster:
    """A fake AdminClient.

    `fail` has the requests that get no response: ("describe", group), ("offsets", group), ("commit", group, partition),
    ("topic", topic), ("end", topic, partition). `unlisted` are groups that the listing does not have; with
    `listing_fails` it has an error. `committed_of` are the groups whose committed offsets were requested in the newest
    round. `on_request` is called with "groups" or "ends" before the response to that request.
    """

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.ends: dict[PartitionId, int] = {}
        self.fail: set[tuple[object, ...]] = set()
        self.unlisted: set[str] = set()
        self.listing_fails = False
        self.committed_of: set[str] = set()
        self.on_request: Callable[[str], None] = lambda _: None

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        """Return the groups, and an error if `listing_fails`."""
        self.committed_of.clear()
        self.on_request("groups")
        valid = [SimpleNamespace(group_id=name) for name in self.groups if name not in self.unlisted]
        return _done(SimpleNamespace(valid=valid, errors=[KafkaException(UNAVAILABLE)] if self.listing_fails else []))

    def describe_consumer_groups(self, names: Iterable[str], **_: Any) -> dict[str, Future[Any]]:
        """Return members and state of each group. A group that does not exist is DEAD, as in Kafka."""
        return {name: self._answer(("describe", name), self._description(name)) for name in names}

    def list_consumer_group_offsets(self, requests: Iterable[Any], **_: Any) -> dict[str, Future[Any]]:
        """Return the committed offsets."""
        answers = {}
        for request in requests:
            name = request.group_id
            self.committed_of.add(name)
            offsets = [
                SimpleNamespace(topic=topic, partition=number, offset=offset, error=self._error("commit", name, number))
                for (topic, number), offset in self.groups.get(name, Group({})).committed.items()
            ]
            answers[name] = self._answer(("offsets", name), SimpleNamespace(topic_partitions=offsets))
        return answers

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        """Return the partitions of the topics."""
        answers: dict[str, Future[Any]] = {}
        for topic in topics.topic_names:
            partitions = [SimpleNamespace(id=number) for name, number in sorted(self.ends) if name == topic]
            known = self._answer(("topic", topic), SimpleNamespace(partitions=partitions))
            answers[topic] = known if partitions else _failed(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return answers

    def list_offsets(self, request: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        """Return starts or ends."""
        answers = {}
        if kafka_admin.LATEST in request.values():
            self.on_request("ends")
        for one, spec in request.items():
            partition = (one.topic, one.partition)
            offset = self.ends[partition] if spec is kafka_admin.LATEST else 0
            answers[one] = self._answer(("end", *partition), SimpleNamespace(offset=offset))
        return answers

    def _description(self, name: str) -> SimpleNamespace:
        group = self.groups.get(name)
        if group is None:
            return SimpleNamespace(members=[], state=SimpleNamespace(name="DEAD"))
        partitions = [SimpleNamespace(topic=topic, partition=number) for topic, number in group.assigned]
        member = SimpleNamespace(assignment=SimpleNamespace(topic_partitions=partitions))
        state = SimpleNamespace(name="STABLE" if partitions else "EMPTY")
        return SimpleNamespace(members=[member] if partitions else [], state=state)

    def _answer(self, request: tuple[object, ...], answer: Any) -> Future[Any]:
        return _failed(UNAVAILABLE) if request in self.fail else _done(answer)

    def _error(self, *request: object) -> KafkaError | None:
        return UNAVAILABLE if request in self.fail else None


def _done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


def _failed(error: KafkaError) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(error))
    return future
