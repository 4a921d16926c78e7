"""Ask a broker for all offsets of all groups by bulk calls: the only module of the collector that speaks to Kafka.

The order of the calls matters: committed offsets first, end offsets last (see `partition_lag`).
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tallystream.dashboards.lag._round import DEAD, NONE, QUERY, UNREAD, Commits, Described, Round, group_lag
from tallystream.dashboards.lag.model import GroupLag, Place
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tallystream.dashboards.lag._patterns import Patterns

K = TypeVar("K")
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
NEWEST = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]

GROUPS_AT_ONCE = 200
"""Kafka's client asks for the offsets of one group a request; so many requests are under way at once."""
GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001 - public codes


class BrokerAwayError(TallystreamError):
    """The broker did not answer the round's first question; the same may work later."""


class StoppedError(Exception):
    """A stop was asked for while the broker was thinking."""


class Asker:
    """Asks through `admin`. Each request may take `timeout` seconds; `stopping` is looked at while waiting.

    `clock` returns epoch seconds.
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
        ledger: Mapping[str, Mapping[Place, int]] | None = None,
        known: Collection[str] = (),
    ) -> Round:
        """Return the lag of every group that `patterns` match. What has no answer is unread; it costs only itself.

        `ledger` has further offsets by group, of queries that commit none, or later than they write them down; None:
        it has not been read. `known` are the groups of earlier rounds: those that are not listed are asked for by name.

        Raises:
            BrokerAwayError: no broker answered.
            StoppedError: `stopping` became true.
        """
        problems: set[str] = set()
        listed, complete = self._groups(patterns, problems)
        written = {name: offsets for name, offsets in (ledger or {}).items() if patterns.match(name)}
        queries = {name for name in known if name.startswith(QUERY)} - listed
        asked = listed | (set(known) - queries)
        wanted = sorted(asked)
        described = self._described(wanted, problems)
        # The same broker answers both: one that did not answer is not waited for again.
        read = self._committed([name for name in wanted if name in described], problems)
        commits = {
            name: read.get(name, UNREAD if name in asked else NONE).ahead(written.get(name, {}))
            for name in asked | written.keys()
        }
        absent = {
            name
            for name in wanted
            if name not in listed and commits[name] == NONE and name in described and described[name].state == DEAD
        }
        gone = (absent if complete else set()) | (queries - written.keys() if ledger is not None else set())
        unread = (absent | queries) - written.keys() - gone
        partitions = self._partitions(_topics(described, commits), problems)
        places = [(topic, partition) for topic, ids in partitions.items() for partition in ids or ()]
        start = self._offsets(places, EARLIEST, problems)
        asked_ms = self._now_ms()
        end = self._offsets(places, LATEST, problems)
        ts_ms = self._now_ms()
        ends = {place: (start[place], end[place]) for place in places if place in start and place in end}
        groups = [GroupLag(name, (), complete=False) for name in unread]
        for name in commits.keys() - absent:
            answered = name in described or name not in asked
            groups.append(group_lag(name, described.get(name), commits[name], partitions, ends, complete=answered))
        groups.sort(key=lambda one: one.group)
        return Round(tuple(groups), tuple(sorted(problems)), frozenset(gone), ends, asked_ms, ts_ms, complete)

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

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)

    def _groups(self, patterns: Patterns, problems: set[str]) -> tuple[set[str], bool]:
        """Return the groups that brokers list, and whether all brokers answered."""
        try:
            listed = self._wait({"": self._admin.list_consumer_groups(request_timeout=self._timeout)})[""].result()
        except KafkaException as error:
            raise BrokerAwayError(_reason(error)) from error
        if listed.errors and not listed.valid:
            raise BrokerAwayError(_reason(listed.errors[0]))
        problems.update(f"listing groups: {_reason(error)}" for error in listed.errors or ())
        names = {group.group_id for group in listed.valid if patterns.match(group.group_id)}
        return names, not listed.errors

    def _described(self, groups: list[str], problems: set[str]) -> dict[str, Described]:
        """What each member of each group has in hand: so a partition without any commit is known, too."""
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
        """All partitions of the topics that (still) exist; None for a topic without an answer."""
        if not topics:
            return {}
        wanted = TopicCollection(sorted(topics))
        answers = self._wait(self._admin.describe_topics(wanted, request_timeout=self._timeout))
        failed: dict[str, list[int] | None] = {}
        found = {
            topic: [p.id for p in each.partitions] for topic, each in _good(answers, "topic", problems, failed=failed)
        }
        return {**failed, **found}

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


def _good(
    answers: Mapping[K, Future[Any]], what: str, problems: set[str], *, failed: dict[K, Any] | None = None
) -> Iterable[tuple[K, Any]]:
    """Yield the answers that came; note the failures, but for what has been deleted meanwhile: that is no failure.

    `failed` gets None for what failed.
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
        elif one.offset >= 0:  # Kafka's client says "nothing committed" by a negative offset: it ends here
            offsets[place] = one.offset
    return Commits(offsets, frozenset(unread))


def _topics(described: Mapping[str, Described], commits: Mapping[str, Commits]) -> set[str]:
    assigned = (places for each in described.values() for places in each.assigned)
    committed = ((*own.offsets, *own.unread) for own in commits.values())
    return {topic for places in (*assigned, *committed) for topic, _ in places}


def _word(name: str) -> str:
    """Return a group's state as Kafka's own tools write it: STABLE is Stable."""
    return "".join(part.capitalize() for part in name.split("_"))


def _reason(error: Exception) -> str:
    inner = error.args[0] if isinstance(error, KafkaException) else error
    return str(inner.str()) if isinstance(inner, KafkaError) else str(inner)
