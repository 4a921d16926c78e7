"""A Kafka cluster as the collector's admin client sees it: groups, commits and ends in memory; answers may fail."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from tallystream_dashboards.lag.collector import kafka_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tallystream_dashboards.lag.model import PartitionId

AWAY = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)


@dataclass
class Group:
    """A group's commits, and the partitions that its only member has; no partitions: no member."""

    committed: dict[PartitionId, int]
    assigned: set[PartitionId] = field(default_factory=set)


class Cluster:
    """Stands in for AdminClient.

    `fail` names what gets no answer: ("describe", group), ("offsets", group), ("commit", topic, partition),
    ("topic", topic), ("end", topic, partition).

    `unlisted` are groups that the broker which has them leaves out of the listing; `listing_fails`: it says so, too.
    `committed_of` are the groups whose commits were asked for in the newest round. `on_request` is called with "groups"
    or "ends" while that answer is on its way.
    """

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.ends: dict[PartitionId, int] = {}
        self.newest: dict[PartitionId, tuple[int, int]] = {}
        self.fail: set[tuple[object, ...]] = set()
        self.unlisted: set[str] = set()
        self.listing_fails = False
        self.committed_of: set[str] = set()
        self.on_request: Callable[[str], None] = lambda _: None

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        """Answer with the groups, and with an error where one broker did not answer."""
        self.committed_of.clear()
        self.on_request("groups")
        valid = [SimpleNamespace(group_id=name) for name in self.groups if name not in self.unlisted]
        return _done(SimpleNamespace(valid=valid, errors=[KafkaException(AWAY)] if self.listing_fails else []))

    def describe_consumer_groups(self, names: Iterable[str], **_: Any) -> dict[str, Future[Any]]:
        """Answer with members and state; a group that is not there is DEAD, as the broker says."""
        return {name: self._answer(("describe", name), self._description(name)) for name in names}

    def list_consumer_group_offsets(self, requests: Iterable[Any], **_: Any) -> dict[str, Future[Any]]:
        """Answer with the commits."""
        found = {}
        for request in requests:
            self.committed_of.add(request.group_id)
            own = self.groups.get(request.group_id, Group({}))
            places = [
                SimpleNamespace(topic=at[0], partition=at[1], offset=offset, error=self._error("commit", *at))
                for at, offset in own.committed.items()
            ]
            answer = SimpleNamespace(topic_partitions=places)
            found[request.group_id] = self._answer(("offsets", request.group_id), answer)
        return found

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        """Answer with the partitions of the topics."""
        found: dict[str, Future[Any]] = {}
        for topic in topics.topic_names:
            ids = [SimpleNamespace(id=number) for name, number in sorted(self.ends) if name == topic]
            known = SimpleNamespace(partitions=ids)
            unknown = _failed(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
            found[topic] = self._answer(("topic", topic), known) if ids else unknown
        return found

    def list_offsets(self, wanted: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        """Answer with starts, ends, or the newest timestamps."""
        found = {}
        if kafka_admin.LATEST in wanted.values():
            self.on_request("ends")
        for at, spec in wanted.items():
            place = (at.topic, at.partition)
            offset, timestamp = 0, -1
            if spec is kafka_admin.LATEST:
                offset = self.ends[place]
            elif spec is kafka_admin.NEWEST:
                offset, timestamp = self.newest.get(place, (-1, -1))
            found[at] = self._answer(("end", *place), SimpleNamespace(offset=offset, timestamp=timestamp))
        return found

    def _description(self, name: str) -> SimpleNamespace:
        group = self.groups.get(name)
        if group is None:
            return SimpleNamespace(members=[], state=SimpleNamespace(name="DEAD"))
        places = [SimpleNamespace(topic=topic, partition=number) for topic, number in group.assigned]
        member = SimpleNamespace(assignment=SimpleNamespace(topic_partitions=places))
        state = SimpleNamespace(name="STABLE" if places else "EMPTY")
        return SimpleNamespace(members=[member] if places else [], state=state)

    def _answer(self, what: tuple[object, ...], answer: Any) -> Future[Any]:
        return _failed(AWAY) if what in self.fail else _done(answer)

    def _error(self, *what: object) -> KafkaError | None:
        return AWAY if what in self.fail else None


def _done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


def _failed(error: KafkaError) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(error))
    return future
