"""Reads the newest sums from `metrics-agg`, for a command that has no store."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaException, TopicPartition

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.partition_bounds import bounds_of
from tallystream_aggregator.kafka.reader import read_from
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.shipping.subscription import Record
from tallystream_aggregator.sinks.base import Series, SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream_aggregator.sinks.base import Point

CHUNK = 10_000
"""The most records that are decoded at a time."""

TIMEOUT_S = 20.0
"""The longest wait for a record or a response, in seconds."""


class LatestReader:
    """A PointReader that has only the newest point of every sum, as of the last `refresh`.

    Raises:
        ConfigError: no broker answers, or librdkafka rejects an option.
        LoginError: the broker rejected the login.
    """

    def __init__(self, cluster: clients.Cluster) -> None:
        self._topics = Topics(cluster.topic_prefix)
        self._kafka = {**cluster.kafka, "bootstrap.servers": cluster.bootstrap_servers}
        check_login(self._kafka)
        self._mapper = PointMapper(self._topics)
        self._newest: dict[str, dict[tuple[tuple[str, str], ...], Point]] = {}
        self._position = 0

    def refresh(self) -> Self:
        """Read up to the end of the topic, the first time from its beginning, as after the topic was created again.

        Raises:
            SinkUnavailableError: the topic can't be read now.
        """
        consumer = clients.reading_consumer(self._kafka)
        try:
            low, end = bounds_of(consumer, TopicPartition(self._topics.agg, 0), timeout=TIMEOUT_S)
            if end < self._position:  # the topic was created again
                self._newest.clear()
                self._position = 0
            start = max(low, self._position)
            if start >= end:
                return self
            records = read_from(consumer, self._topics.agg, {0: start}, {0: end}, timeout=TIMEOUT_S)
            while chunk := list(islice(records, CHUNK)):
                read = [Record(self._topics.agg, record.offset, record.key, record.value) for record in chunk]
                for point in self._mapper.newest(read):
                    self._newest.setdefault(point.measurement, {})[tuple(sorted(point.tags.items()))] = point
                self._position = chunk[-1].offset + 1
        except KafkaException as error:
            raise SinkUnavailableError(f"{self._topics.agg}: {error.args[0].str()}") from error
        except TallystreamError as error:
            raise SinkUnavailableError(*error.args) from error
        finally:
            consumer.close()
        return self

    def measurements(self) -> list[str]:
        """Return the names of all sums, sorted."""
        return sorted(self._newest)

    def read(
        self,
        measurement: str,
        fields: Sequence[str],
        *,
        start_ms: int,  # noqa: ARG002 (there is one point, at any time)
        end_ms: int,  # noqa: ARG002
        tags: Mapping[str, str] | None = None,
        last_before: bool = False,  # noqa: ARG002
    ) -> list[Series]:
        """Return the newest value of each field, at whatever time, as in the protocol `PointReader`."""
        points = self._newest.get(measurement, {})
        return [
            Series(measurement, point.tags, name, [point.ts_ms], [point.fields[name]])
            for _, point in sorted(points.items(), key=lambda one: one[0])
            if (tags or {}).items() <= dict(point.tags).items()
            for name in sorted(fields)
            if name in point.fields
        ]

    def close(self) -> None:
        """Do nothing: the reader is connected only during `refresh`."""
