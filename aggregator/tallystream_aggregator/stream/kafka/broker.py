"""Kafka as the loop uses it: `KafkaBroker` implements `stream.broker.Broker` on confluent-kafka."""

from __future__ import annotations

import time
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.topics import require_append_time
from tallystream_aggregator.stream.broker import Bounds, Place
from tallystream_aggregator.stream.kafka.calls import (
    LEADERLESS,
    MISSING,
    PAUSE_S,
    SLICE_S,
    TRANSIENT,
    Timeouts,
    error_of,
)
from tallystream_aggregator.stream.kafka.source import KafkaSource
from tallystream_aggregator.stream.kafka.writer import open_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from concurrent.futures import Future

    from confluent_kafka.admin import TopicMetadata

    from tallystream_aggregator.kafka.topic_selection import Selection
    from tallystream_aggregator.stream.broker import Positions, Source, Writer

METADATA_S = 2.0
"""The time for one request of the topics, which can't be interrupted."""

_DEFAULTS = {"reconnect.backoff.max.ms": 1_000}  # librdkafka's 10 s would add to every outage
_COMMITTED = {"fetch.wait.max.ms": 50}  # a tail without records is passed when a fetch returns nothing
_NO_LEADER = LEADERLESS | {KafkaError._NOENT}  # noqa: SLF001 (librdkafka's name for it, if none of the partitions has one)

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Asked = TypeVar("Asked")


class KafkaBroker:
    """Access to one Kafka cluster. It may be used by one thread at a time.

    Args:
        kafka: librdkafka's options, with bootstrap.servers.
        selection: the topics that the table reads.
        group: the consumer group for authorization; nothing is committed.
        timeouts: how long calls wait for a broker.

    Raises:
        ConfigError: librdkafka rejects an option.
    """

    def __init__(
        self, kafka: Mapping[str, Any], selection: Selection, group: str, timeouts: Timeouts | None = None
    ) -> None:
        self._kafka = {**_DEFAULTS, **kafka}
        self._servers = kafka["bootstrap.servers"]
        self._selection = selection
        self._group = group
        self._timeouts = timeouts or Timeouts()
        self._admin = clients.admin(self._kafka)
        self._known: set[str] = set()  # the topics that have append times

    def writer(self, transactional_id: str) -> Writer:
        """Fence all earlier writers with this ID, end their transaction, and return a new one."""
        return open_writer(self._kafka, transactional_id, self._timeouts)

    def source(self, *, committed: bool = False) -> Source:
        """Return a source without partitions. It reads records of open transactions, too, unless `committed`."""
        options = {**(_COMMITTED if committed else {}), **self._kafka}
        options["isolation.level"] = "read_committed" if committed else "read_uncommitted"
        return KafkaSource(options, self._group, self.bounds)

    def partitions(self) -> dict[str, Collection[int]]:
        """Return the partitions that exist now of the topics that the table reads: topic → partitions."""
        found = self._selection.among(self._topics())
        try:
            require_append_time(self._admin, found.keys() - self._known)
        except KafkaException as error:
            raise error_of(self._servers, "the configuration of a topic can't be read", error.args[0]) from error
        self._known |= found.keys()
        return dict(found)

    def partitions_of(self, topic: str) -> list[int]:
        """Return the partitions of any topic, none if it does not exist.

        Raises:
            BrokerError: the broker did not answer in time.
        """
        found = self._topics().get(topic)
        return [] if found is None else sorted(found.partitions)

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the IDs of those of these topics that exist. A topic that is created again has another one."""

        def ask(names: list[str], timeout_s: float) -> dict[str, Future[Any]]:
            return self._admin.describe_topics(TopicCollection(names), request_timeout=timeout_s)

        return {topic: str(found.topic_id) for topic, found in self._ask(topics, ask, "topic IDs").items()}

    def bounds(self, places: Collection[Place]) -> dict[Place, Bounds]:
        """Return the bounds of those of these partitions that exist."""
        if not places:
            return {}
        # Without these, a request fails in the same way as one for partitions that have no leader now.
        topics = self._topics()
        existing = [
            place for place in places if place.topic in topics and place.partition in topics[place.topic].partitions
        ]
        # One after the other: all three only grow, so none exceeds the next one.
        first = self._offsets(existing, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        stable = self._offsets(first, _LATEST, IsolationLevel.READ_COMMITTED)
        end = self._offsets(stable, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        return {place: Bounds(first[place], stable[place], offset) for place, offset in end.items()}

    def ends(self, places: Collection[Place]) -> Positions:
        """Return the ends of those of these partitions that exist, open transactions included.

        Raises:
            BrokerError: the broker did not answer in time.
        """
        return self._offsets(places, _LATEST, IsolationLevel.READ_UNCOMMITTED)

    def offsets_at(self, places: Collection[Place], ts_ms: int) -> Positions:
        """Return the offset of the first record appended at or after a time, -1 if there is none.

        Raises:
            BrokerError: the broker did not answer in time.
        """
        return self._offsets(places, OffsetSpec.for_timestamp(ts_ms), IsolationLevel.READ_UNCOMMITTED)

    def _topics(self) -> dict[str, TopicMetadata]:
        deadline = time.monotonic() + self._timeouts.query_s
        while True:
            left_s = max(deadline - time.monotonic(), PAUSE_S)
            try:
                return dict(self._admin.list_topics(timeout=min(left_s, METADATA_S)).topics)
            except KafkaException as error:
                if error.args[0].code() not in TRANSIENT or time.monotonic() >= deadline:
                    raise error_of(self._servers, "the topics can't be read", error.args[0]) from error
            self._timeouts.check_stop()
            time.sleep(PAUSE_S)

    def _offsets(self, places: Iterable[Place], spec: OffsetSpec, isolation: IsolationLevel) -> Positions:
        def ask(left: list[Place], timeout_s: float) -> dict[Place, Future[Any]]:
            asked = {TopicPartition(*place): spec for place in left}
            found = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=timeout_s)
            return {Place(partition.topic, partition.partition): future for partition, future in found.items()}

        return {place: found.offset for place, found in self._ask(places, ask, "offsets").items()}

    def _ask(
        self, asked: Iterable[Asked], ask: Callable[[list[Asked], float], Mapping[Asked, Future[Any]]], what: str
    ) -> dict[Asked, Any]:
        """Return the broker's answers, without those of what does not exist. Asks again while there is no leader."""
        deadline = time.monotonic() + self._timeouts.query_s
        left, answers = list(asked), {}
        while left:
            futures = ask(left, max(deadline - time.monotonic(), PAUSE_S))
            while wait(futures.values(), SLICE_S).not_done:
                self._timeouts.check_stop()
            left = []
            for one, future in futures.items():
                try:
                    answers[one] = future.result()
                except KafkaException as error:
                    if error.args[0].code() in _NO_LEADER and time.monotonic() < deadline:
                        left.append(one)
                    elif error.args[0].code() not in MISSING:
                        raise error_of(self._servers, f"{what} can't be read", error.args[0]) from error
            if left:
                self._timeouts.check_stop()
                time.sleep(PAUSE_S)
                self._topics()  # else librdkafka may ask for the leaders of before a restart, for minutes
        return answers
