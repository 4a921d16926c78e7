"""Request all offsets of all groups from the broker, in bulk.

Ends are requested after committed offsets. In the other order, a consumer that commits between the two requests would
seem to be past the end. In this order the end can only have grown, so the lag may be a little too high but is never
negative. Therefore a committed offset past the end is never due to the order.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tallystream.errors import TallystreamError
from tallystream_dashboards.lag.collector.answers import GroupAnswers, group_offsets
from tallystream_dashboards.lag.offsets import GroupOffsets, RoundOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tallystream_dashboards.lag.collector.settings import Patterns
    from tallystream_dashboards.lag.offsets import PartitionId

K = TypeVar("K")
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]

MAX_GROUPS_IN_FLIGHT = 200
"""How many requests for offsets are in flight at once. The Kafka client sends one request for each group."""
NAMELESS = (
    "the group '', which has an empty ID: the Kafka client can't request its offsets; give the clients that commit "
    "there a group.id, or leave the group out with --exclude ''"
)
"""The problem of a group that clients without a group.id have made, which brokers allow."""
_NOT_FOUND = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001 - public codes


class BrokerUnavailableError(TallystreamError):
    """No broker listed its groups, or a request had no answer by its deadline. A later round may succeed."""


class StoppedError(Exception):
    """A stop was requested during a request."""


class OffsetFetcher:
    """Requests to the broker, each with a timeout of `timeout` seconds.

    `connect` returns a new client. A client that got no answer about a group is replaced: if the coordinator is found
    later, librdkafka aborts the process (https://github.com/confluentinc/librdkafka/issues/4605).
    A request ends early when `stopping` returns True. `answered` is called after each one. `clock` returns epoch
    seconds.
    """

    def __init__(
        self,
        connect: Callable[[], AdminClient],
        *,
        timeout: float,
        stopping: Callable[[], bool],
        answered: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connect, self._admin = connect, connect()
        self._timeout = timeout
        self._stopping = stopping
        self._answered = answered
        self._clock = clock

    def fetch(
        self,
        patterns: Patterns,
        known: Collection[str] = (),
    ) -> RoundOffsets:
        """Return the offsets of every group that `patterns` match. A group or partition without an answer is unread.

        `known` are the groups of earlier rounds: those that are not listed are requested by name.

        Raises:
            BrokerUnavailableError: no broker answered, or a request had no answer by its deadline.
            StoppedError: `stopping` returned True.
        """
        problems: set[str] = set()
        listed, all_listed = self._list_groups(patterns, problems)
        answers = self._answers(sorted(listed | set(known)), problems)
        ids = self._partitions({topic for one in answers.values() for topic, _ in one.used}, problems)
        partitions = [(topic, number) for topic, numbers in ids.items() for number in numbers or ()]
        starts = self._offsets(partitions, EARLIEST, problems)
        ends = self._offsets(partitions, LATEST, problems)
        ts_ms = round(self._clock() * 1000)
        bounds = {one: (starts[one], ends[one]) for one in partitions if one in starts and one in ends}
        missing = {name for name, one in answers.items() if one.missing and name not in listed}
        return RoundOffsets(
            groups=tuple(
                GroupOffsets(name, (), complete=False) if name in missing else group_offsets(name, one, ids, bounds)
                for name, one in answers.items()
                if name not in missing or not all_listed
            ),
            problems=tuple(sorted(problems)),
            # A broker that did not answer the listing may know the others.
            deleted=frozenset(missing if all_listed else ()),
            bounds=bounds,
            ts_ms=ts_ms,
        )

    def last_stable(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """Return the last stable offset of each partition: an open transaction begins there if it is before the end.

        Partitions without an answer are left out.

        Raises:
            BrokerUnavailableError: a request had no answer by its deadline.
            StoppedError: `stopping` returned True.
        """
        committed = IsolationLevel.READ_COMMITTED
        answers = self._list_offsets(partitions, LATEST, "last stable offset of", set(), isolation_level=committed)
        return {partition: info.offset for partition, info in answers}

    def _answers(self, groups: list[str], problems: set[str]) -> dict[str, GroupAnswers]:
        """Return the answers about each group, in the order of the groups."""
        answers = dict.fromkeys(groups, GroupAnswers()) | self._describe(groups, problems)
        # The same broker answers both requests about a group. If it did not answer the first, the second is not sent.
        described = [name for name in groups if answers[name].assigned is not None]
        for name, partitions in self._committed(described, problems).items():
            offsets, unread = _committed_offsets(name, partitions, problems)
            answers[name] = answers[name]._replace(offsets=offsets, unread=unread, complete=True)
        return answers

    def _list_groups(self, patterns: Patterns, problems: set[str]) -> tuple[set[str], bool]:
        """Return the groups that brokers list, and whether all brokers answered."""
        try:
            listed = self._wait({"": self._admin.list_consumer_groups(request_timeout=self._timeout)})[""].result()
        except KafkaException as error:
            raise BrokerUnavailableError(_reason(error)) from error
        if listed.errors and not listed.valid:
            raise BrokerUnavailableError(_reason(listed.errors[0]))
        problems.update(f"listing groups: {_reason(error)}" for error in listed.errors or ())
        names = {group.group_id for group in listed.valid if patterns.match(group.group_id)}
        if "" in names:
            problems.add(NAMELESS)
        return names - {""}, not listed.errors

    def _describe(self, groups: list[str], problems: set[str]) -> dict[str, GroupAnswers]:
        """Return the members' assignments, which include partitions without a commit, and the state of each group."""
        if not groups:
            return {}
        answers = self._wait_for_coordinators(
            self._admin.describe_consumer_groups(groups, request_timeout=self._timeout)
        )
        return {
            group: GroupAnswers(
                tuple(
                    frozenset((one.topic, one.partition) for one in member.assignment.topic_partitions)
                    for member in info.members
                ),
                _state(info.state.name),
            )
            for group, info in _results(answers, "members of the group", problems)
        }

    def _committed(self, groups: list[str], problems: set[str]) -> dict[str, Iterable[Any]]:
        committed: dict[str, Iterable[Any]] = {}
        for first in range(0, len(groups), MAX_GROUPS_IN_FLIGHT):
            requests: dict[str, Future[Any]] = {}
            for group in groups[first : first + MAX_GROUPS_IN_FLIGHT]:
                request = [ConsumerGroupTopicPartitions(group)]
                requests |= self._admin.list_consumer_group_offsets(request, request_timeout=self._timeout)
            for group, info in _results(self._wait_for_coordinators(requests), "offsets of the group", problems):
                committed[group] = info.topic_partitions or ()
        return committed

    def _partitions(self, topics: set[str], problems: set[str]) -> dict[str, list[int] | None]:
        """Return the partitions of the topics that exist; None for a topic without an answer."""
        if not topics:
            return {}
        request = TopicCollection(sorted(topics))
        answers = self._wait(self._admin.describe_topics(request, request_timeout=self._timeout))
        failed: set[str] = set()
        ids = {
            topic: [one.id for one in info.partitions]
            for topic, info in _results(answers, "topic", problems, failed=failed)
        }
        return {**dict.fromkeys(failed), **ids}

    def _offsets(self, partitions: list[PartitionId], spec: OffsetSpec, problems: set[str]) -> dict[PartitionId, int]:
        return {one: info.offset for one, info in self._list_offsets(partitions, spec, "end of", problems)}

    def _list_offsets(
        self, partitions: Iterable[PartitionId], spec: OffsetSpec, what: str, problems: set[str], **options: Any
    ) -> Iterable[tuple[PartitionId, Any]]:
        request = {TopicPartition(topic, number): spec for topic, number in partitions}
        if request:
            answers = self._wait(self._admin.list_offsets(request, request_timeout=self._timeout, **options))
            yield from (((one.topic, one.partition), info) for one, info in _results(answers, what, problems))

    def _wait_for_coordinators(self, requests: Mapping[K, Future[Any]]) -> Mapping[K, Future[Any]]:
        answers = self._wait(requests)
        errors = [one.exception() for one in answers.values()]
        # A negative code is of the client itself: it has no answer of the broker.
        if any(isinstance(error, KafkaException) and error.args[0].code() < 0 for error in errors):
            self._admin = self._connect()
        return answers

    def _wait(self, requests: Mapping[K, Future[Any]]) -> Mapping[K, Future[Any]]:
        # The client's own timeout should end every request; this deadline is for requests that it does not end.
        deadline = time.monotonic() + self._timeout + 5.0
        waiting: set[Future[Any]] = set(requests.values())
        while waiting:
            waiting = wait(waiting, timeout=0.1).not_done
            if self._stopping():
                raise StoppedError
            if waiting and time.monotonic() > deadline:
                self._admin = self._connect()
                raise BrokerUnavailableError(f"no answer within {self._timeout:g} s")
        self._answered()
        return requests


def _results(
    answers: Mapping[K, Future[Any]], what: str, problems: set[str], *, failed: set[K] | None = None
) -> Iterable[tuple[K, Any]]:
    """Yield the answers without an error; add the others to `problems`, and their keys to `failed`.

    A topic or partition that no longer exists is not a failure.
    """
    for key, future in answers.items():
        try:
            yield key, future.result()
        except KafkaException as error:
            if error.args[0].code() not in _NOT_FOUND:
                name = f"{key.topic}/{key.partition}" if isinstance(key, TopicPartition) else key
                problems.add(f"{what} {name}: {_reason(error)}")
                if failed is not None:
                    failed.add(key)


def _committed_offsets(
    group: str, partitions: Iterable[Any], problems: set[str]
) -> tuple[dict[PartitionId, int], frozenset[PartitionId]]:
    """Return the offsets of a group, and the partitions with an error."""
    offsets, unread = {}, set()
    for one in partitions:
        partition = (one.topic, one.partition)
        if one.error:
            unread.add(partition)
            problems.add(f"offset of the group {group} in {one.topic}/{one.partition}: {_reason(one.error)}")
        elif one.offset >= 0:  # a negative offset means that nothing is committed
            offsets[partition] = one.offset
    return offsets, frozenset(unread)


def _state(name: str) -> str:
    """Return a group's state as Kafka's own tools write it: `Stable` for STABLE."""
    return "".join(part.capitalize() for part in name.split("_"))


def _reason(error: Exception) -> str:
    inner = error.args[0] if isinstance(error, KafkaException) else error
    return str(inner.str()) if isinstance(inner, KafkaError) else str(inner)
