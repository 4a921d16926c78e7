"""Request all offsets of all groups from the broker, in bulk.

The order of the requests matters: committed offsets first, end offsets last (see `partition_lag`).
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tallystream.errors import TallystreamError
from tallystream_dashboards.lag.collector.answers import NONE, UNREAD, Answers, Commits, Described
from tallystream_dashboards.lag.model import QUERY, Round

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tallystream_dashboards.lag.collector.settings import Patterns
    from tallystream_dashboards.lag.model import PartitionId

K = TypeVar("K")
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
NEWEST = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]

GROUPS_AT_ONCE = 200
"""How many requests for offsets are in flight at once. The Kafka client sends one request for each group."""
GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001 - public codes


class BrokerUnavailableError(TallystreamError):
    """No broker listed its groups, or a request had no answer by its deadline. A later round may succeed."""


class StoppedError(Exception):
    """A stop was requested during a request."""


class OffsetFetcher:
    """Requests to the broker through `admin`, each with a timeout of `timeout` seconds.

    A request ends early when `stopping` returns True. `clock` returns epoch seconds.
    """

    def __init__(
        self,
        admin: AdminClient,
        *,
        timeout: float,
        stopping: Callable[[], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._admin = admin
        self._timeout = timeout
        self._stopping = stopping
        self._clock = clock

    def ask(
        self,
        patterns: Patterns,
        ledger: Mapping[str, Mapping[PartitionId, int]] | None = None,
        known: Collection[str] = (),
    ) -> Round:
        """Return the lag of every group that `patterns` match. A group or partition without an answer is unread.

        `ledger` has the offsets of queries, by group: some queries commit no offsets, others commit them after they
        write to the ledger. None means that it has not been read. `known` are the groups of earlier rounds: those that
        are not listed are requested by name.

        Raises:
            BrokerUnavailableError: no broker answered, or a request had no answer by its deadline.
            StoppedError: `stopping` returned True.
        """
        problems: set[str] = set()
        groups = self._ask_groups(patterns, ledger, known, problems)
        partitions = self._partitions(groups.topics, problems)
        places = [(topic, partition) for topic, ids in partitions.items() for partition in ids or ()]
        start = self._offsets(places, EARLIEST, problems)
        requested_ms = self._now_ms()
        end = self._offsets(places, LATEST, problems)
        ts_ms = self._now_ms()
        ends = {place: (start[place], end[place]) for place in places if place in start and place in end}
        return Round(
            groups=groups.lags(partitions, ends),
            problems=tuple(sorted(problems)),
            gone=groups.gone,
            places=ends,
            requested_ms=requested_ms,
            ts_ms=ts_ms,
            complete=groups.complete,
        )

    def newest(self, places: Iterable[PartitionId]) -> dict[PartitionId, tuple[int, int]]:
        """Return the offset and the timestamp (epoch ms) of the record with the highest timestamp of each partition.

        Partitions without a record or without an answer are left out.

        Raises:
            BrokerUnavailableError: a request had no answer by its deadline.
            StoppedError: `stopping` returned True.
        """
        wanted = {TopicPartition(topic, partition): NEWEST for topic, partition in places}
        answers = self._wait(self._admin.list_offsets(wanted, request_timeout=self._timeout)) if wanted else {}
        found = ((at, info) for at, info in _good(answers, "newest of", set()) if info.offset >= 0)
        return {(at.topic, at.partition): (info.offset, info.timestamp) for at, info in found if info.timestamp > 0}

    def _ask_groups(
        self,
        patterns: Patterns,
        ledger: Mapping[str, Mapping[PartitionId, int]] | None,
        known: Collection[str],
        problems: set[str],
    ) -> Answers:
        listed, complete = self._groups(patterns, problems)
        written = {name: offsets for name, offsets in (ledger or {}).items() if patterns.match(name)}
        queries = {name for name in known if name.startswith(QUERY)} - listed
        asked = listed | (set(known) - queries)
        described = self._described(sorted(asked), problems)
        # The same broker answers both requests about a group. If it did not answer the first, the second is not sent.
        read = self._committed(sorted(described), problems)
        commits = {
            name: read.get(name, UNREAD if name in asked else NONE).ahead(written.get(name, {}))
            for name in asked | written.keys()
        }
        return Answers(
            listed=listed,
            complete=complete,
            asked=asked,
            described=described,
            commits=commits,
            lost_queries=queries - written.keys(),
            ledger_read=ledger is not None,
        )

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)

    def _groups(self, patterns: Patterns, problems: set[str]) -> tuple[set[str], bool]:
        """Return the groups that brokers list, and whether all brokers answered."""
        try:
            listed = self._wait({"": self._admin.list_consumer_groups(request_timeout=self._timeout)})[""].result()
        except KafkaException as error:
            raise BrokerUnavailableError(_reason(error)) from error
        if listed.errors and not listed.valid:
            raise BrokerUnavailableError(_reason(listed.errors[0]))
        problems.update(f"listing groups: {_reason(error)}" for error in listed.errors or ())
        names = {group.group_id for group in listed.valid if patterns.match(group.group_id)}
        return names, not listed.errors

    def _described(self, groups: list[str], problems: set[str]) -> dict[str, Described]:
        """Return the members' assignments, which include partitions without a commit, and the state of each group."""
        if not groups:
            return {}
        answers = self._wait(self._admin.describe_consumer_groups(groups, request_timeout=self._timeout))
        return {
            group: Described(
                [{(at.topic, at.partition) for at in member.assignment.topic_partitions} for member in found.members],
                _word(found.state.name),
            )
            for group, found in _good(answers, "members of the group", problems)
        }

    def _committed(self, groups: list[str], problems: set[str]) -> dict[str, Commits]:
        offsets: dict[str, Commits] = {}
        for at in range(0, len(groups), GROUPS_AT_ONCE):
            asked: dict[str, Future[Any]] = {}
            for group in groups[at : at + GROUPS_AT_ONCE]:
                request = [ConsumerGroupTopicPartitions(group)]
                asked |= self._admin.list_consumer_group_offsets(request, request_timeout=self._timeout)
            for group, found in _good(self._wait(asked), "offsets of the group", problems):
                offsets[group] = _commits(group, found.topic_partitions or (), problems)
        return offsets

    def _partitions(self, topics: set[str], problems: set[str]) -> dict[str, list[int] | None]:
        """Return the partitions of the topics that exist; None for a topic without an answer."""
        if not topics:
            return {}
        wanted = TopicCollection(sorted(topics))
        answers = self._wait(self._admin.describe_topics(wanted, request_timeout=self._timeout))
        failed: dict[str, list[int] | None] = {}
        found = {
            topic: [p.id for p in each.partitions] for topic, each in _good(answers, "topic", problems, failed=failed)
        }
        return {**failed, **found}

    def _offsets(self, places: list[PartitionId], spec: OffsetSpec, problems: set[str]) -> dict[PartitionId, int]:
        if not places:
            return {}
        wanted = {TopicPartition(topic, partition): spec for topic, partition in places}
        answers = self._wait(self._admin.list_offsets(wanted, request_timeout=self._timeout))
        return {(at.topic, at.partition): found.offset for at, found in _good(answers, "end of", problems)}

    def _wait(self, asked: Mapping[K, Future[Any]]) -> Mapping[K, Future[Any]]:
        # The client's own timeout should end every request; this deadline is for requests that it does not end.
        deadline = time.monotonic() + self._timeout + 5.0
        waiting: set[Future[Any]] = set(asked.values())
        while waiting:
            waiting = wait(waiting, timeout=0.1).not_done
            if self._stopping():
                raise StoppedError
            if waiting and time.monotonic() > deadline:
                raise BrokerUnavailableError(f"no answer within {self._timeout:g} s")
        return asked


def _good(
    answers: Mapping[K, Future[Any]], what: str, problems: set[str], *, failed: dict[K, Any] | None = None
) -> Iterable[tuple[K, Any]]:
    """Yield the answers without an error; add the others to `problems`, and to `failed` with the value None.

    A topic or partition that no longer exists is not a failure.
    """
    for key, future in answers.items():
        try:
            yield key, future.result()
        except KafkaException as error:
            if error.args[0].code() not in GONE:
                name = f"{key.topic}/{key.partition}" if isinstance(key, TopicPartition) else key
                problems.add(f"{what} {name}: {_reason(error)}")
                if failed is not None:
                    failed[key] = None


def _commits(group: str, places: Iterable[Any], problems: set[str]) -> Commits:
    offsets, unread = {}, set()
    for one in places:
        place = (one.topic, one.partition)
        if one.error:
            unread.add(place)
            problems.add(f"offset of the group {group} in {one.topic}/{one.partition}: {_reason(one.error)}")
        elif one.offset >= 0:  # a negative offset means that nothing is committed
            offsets[place] = one.offset
    return Commits(offsets, frozenset(unread))


def _word(name: str) -> str:
    """Return a group's state as Kafka's own tools write it: `Stable` for STABLE."""
    return "".join(part.capitalize() for part in name.split("_"))


def _reason(error: Exception) -> str:
    inner = error.args[0] if isinstance(error, KafkaException) else error
    return str(inner.str()) if isinstance(inner, KafkaError) else str(inner)
