"""Ask a broker for all offsets of all groups by bulk calls: the only module of the collector that speaks to Kafka.

The order of the calls matters: committed offsets first, end offsets last (see `partition_lag`).
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tallystream.dashboards.lag.model import GroupLag, partition_lag
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tallystream.dashboards.lag._patterns import Patterns

K = TypeVar("K")
Place = tuple[str, int]
"""A topic and a partition."""

EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
NEWEST = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]

GROUPS_AT_ONCE = 200
"""Kafka's client asks for the offsets of one group a request; so many requests are under way at once."""
GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001 - public codes


class BrokerAwayError(TallystreamError):
    """The broker did not answer the round's first question; the same may work later."""


class StoppedError(Exception):
    """A stop was asked for while the broker was thinking."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found.

    `problems` says in sentences, sorted, which groups or partitions could not be read. `names` are all watched groups
    that there are, those without an offset among them; `places` has start and end of every partition that was asked
    for, `unread` those that could not be read this time.
    """

    groups: tuple[GroupLag, ...]
    problems: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    places: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    unread: frozenset[Place] = frozenset()


class Asker:
    """Asks through `admin`. Each request may take `timeout` seconds; `stopping` is looked at while waiting."""

    def __init__(self, admin: AdminClient, *, timeout: float, stopping: Callable[[], bool]) -> None:
        self._admin = admin
        self._timeout = timeout
        self._stopping = stopping

    def ask(self, patterns: Patterns, ledger: Mapping[str, Mapping[Place, int]] | None = None) -> Round:
        """Return the lag of every group that `patterns` match. A group that fails costs only itself.

        `ledger` has further offsets by group, of queries that commit none, or later than they write them down.

        Raises:
            BrokerAwayError: no broker answered.
            StoppedError: `stopping` became true.
        """
        problems: set[str] = set()
        listed = self._groups(patterns, problems)
        written = {name: offsets for name, offsets in (ledger or {}).items() if patterns.match(name)}
        described = self._described(listed, problems)
        committed = _ahead(self._committed(listed, problems), written)
        topics = {
            topic
            for places in (*(own for each in described.values() for own in each.assigned), *committed.values())
            for topic, _ in places
        }
        partitions = self._partitions(topics, problems)
        places = [(topic, partition) for topic, ids in partitions.items() for partition in ids]
        start = self._offsets(places, EARLIEST, problems)
        end = self._offsets(places, LATEST, problems)
        known = {place: (start[place], end[place]) for place in places if place in start and place in end}
        groups = (
            _group_lag(name, described.get(name), committed[name], partitions=partitions, known=known)
            for name in sorted({*listed, *written})
            if name in committed
        )
        return Round(
            tuple(group for group in groups if group.partitions),
            tuple(sorted(problems)),
            frozenset({*listed, *written}),
            known,
            frozenset(place for place in places if place not in known),
        )

    def newest(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """Return the offset and the timestamp (epoch ms) of the record with the highest timestamp of each partition.

        Partitions without a record, and those that can't be asked, are not there.

        Raises:
            StoppedError: `stopping` became true.
        """
        wanted = {TopicPartition(topic, partition): NEWEST for topic, partition in places}
        answers = self._wait(self._admin.list_offsets(wanted, request_timeout=self._timeout)) if wanted else {}
        found = ((at, info) for at, info in _good(answers, "newest of", set()) if info.offset >= 0)
        return {(at.topic, at.partition): (info.offset, info.timestamp) for at, info in found if info.timestamp > 0}

    def _groups(self, patterns: Patterns, problems: set[str]) -> list[str]:
        try:
            listed = self._wait({"": self._admin.list_consumer_groups(request_timeout=self._timeout)})[""].result()
        except KafkaException as error:
            raise BrokerAwayError(_reason(error)) from error
        if listed.errors and not listed.valid:
            raise BrokerAwayError(_reason(listed.errors[0]))
        problems.update(f"listing groups: {_reason(error)}" for error in listed.errors or ())
        return sorted(group.group_id for group in listed.valid if patterns.match(group.group_id))

    def _described(self, groups: list[str], problems: set[str]) -> dict[str, _Described]:
        """What each member of each group has in hand: so a partition without any commit is known, too."""
        if not groups:
            return {}
        answers = self._wait(self._admin.describe_consumer_groups(groups, request_timeout=self._timeout))
        return {
            group: _Described(
                [{(at.topic, at.partition) for at in member.assignment.topic_partitions} for member in found.members],
                _word(found.state.name),
            )
            for group, found in _good(answers, "members of the group", problems)
        }

    def _committed(self, groups: list[str], problems: set[str]) -> dict[str, dict[Place, int]]:
        offsets: dict[str, dict[Place, int]] = {}
        for at in range(0, len(groups), GROUPS_AT_ONCE):
            asked: dict[str, Future[Any]] = {}
            for group in groups[at : at + GROUPS_AT_ONCE]:
                request = [ConsumerGroupTopicPartitions(group)]
                asked |= self._admin.list_consumer_group_offsets(request, request_timeout=self._timeout)
            for group, found in _good(self._wait(asked), "offsets of the group", problems):
                places = found.topic_partitions or ()
                # Kafka's client says "nothing committed" by a negative offset: it ends here, at the border.
                offsets[group] = {(p.topic, p.partition): p.offset for p in places if not p.error and p.offset >= 0}
        return offsets

    def _partitions(self, topics: set[str], problems: set[str]) -> dict[str, list[int]]:
        """All partitions of the topics that (still) exist."""
        if not topics:
            return {}
        wanted = TopicCollection(sorted(topics))
        answers = self._wait(self._admin.describe_topics(wanted, request_timeout=self._timeout))
        return {topic: [p.id for p in found.partitions] for topic, found in _good(answers, "topic", problems)}

    def _offsets(self, places: list[Place], spec: OffsetSpec, problems: set[str]) -> dict[Place, int]:
        if not places:
            return {}
        wanted = {TopicPartition(topic, partition): spec for topic, partition in places}
        answers = self._wait(self._admin.list_offsets(wanted, request_timeout=self._timeout))
        return {(at.topic, at.partition): found.offset for at, found in _good(answers, "end of", problems)}

    def _wait(self, asked: Mapping[K, Future[Any]]) -> Mapping[K, Future[Any]]:
        # The client's own timeout ends every request; the deadline here is for a client that breaks that promise.
        deadline = time.monotonic() + self._timeout + 5.0
        waiting: set[Future[Any]] = set(asked.values())
        while waiting:
            waiting = wait(waiting, timeout=0.1).not_done
            if self._stopping():
                raise StoppedError
            if waiting and time.monotonic() > deadline:
                raise BrokerAwayError(f"no answer within {self._timeout:g} s")
        return asked


def _good(answers: Mapping[K, Future[Any]], what: str, problems: set[str]) -> Iterable[tuple[K, Any]]:
    """Yield the answers that came; note the failures, but for what has been deleted meanwhile: that is no failure."""
    for key, future in answers.items():
        try:
            yield key, future.result()
        except KafkaException as error:
            if error.args[0].code() not in GONE:
                name = f"{key.topic}/{key.partition}" if isinstance(key, TopicPartition) else key
                problems.add(f"{what} {name}: {_reason(error)}")


class _Described(NamedTuple):
    assigned: list[set[Place]]
    state: str


def _word(name: str) -> str:
    """Return a group's state as Kafka's own tools write it: STABLE is Stable."""
    return "".join(part.capitalize() for part in name.split("_"))


def _ahead(
    committed: dict[str, dict[Place, int]], written: Mapping[str, Mapping[Place, int]]
) -> dict[str, dict[Place, int]]:
    """Return the offsets of both sources: the further one of each partition."""
    for group, offsets in written.items():
        own = committed.setdefault(group, {})
        for place, offset in offsets.items():
            own[place] = max(offset, own.get(place, 0))
    return committed


def _group_lag(
    group: str,
    described: _Described | None,
    committed: Mapping[Place, int],
    *,
    partitions: Mapping[str, list[int]],
    known: Mapping[Place, tuple[int, int]],
) -> GroupLag:
    assigned: set[Place] = set().union(*(described.assigned if described else ()))
    topics = sorted({topic for topic, _ in assigned} | {topic for topic, _ in committed})
    places = ((topic, partition) for topic in topics for partition in partitions.get(topic, ()))
    return GroupLag(
        group,
        tuple(
            partition_lag(*place, start=known[place][0], end=known[place][1], committed=committed.get(place))
            for place in places
            if place in known
        ),
        None if described is None else len(described.assigned),
        "" if described is None else described.state,
    )


def _reason(error: Exception) -> str:
    inner = error.args[0] if isinstance(error, KafkaException) else error
    return str(inner.str()) if isinstance(inner, KafkaError) else str(inner)
