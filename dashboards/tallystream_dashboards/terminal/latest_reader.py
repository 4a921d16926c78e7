"""Reads the newest sums from `metrics-agg`, for a command that has no store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.shipping.tail import Tail
from tallystream_aggregator.sinks.base import Series, SinkUnavailableError
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.kafka.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream_aggregator.sinks.base import Point


class LatestReader:
    """A PointReader that has only the newest point of every sum, as of the last `refresh`.

    Raises:
        ConfigError: no broker answers, or librdkafka rejects an option.
        LoginError: the broker rejected the login.
    """

    def __init__(self, cluster: clients.Cluster) -> None:
        topics = Topics(cluster.topic_prefix)
        check_login(cluster.options)
        self._mapper = PointMapper(topics)
        self._newest: dict[str, dict[tuple[tuple[str, str], ...], Point]] = {}
        broker = KafkaBroker(cluster.options, Selection(topics.agg), clients.READING)
        self._tail = Tail(broker, lambda: [Place(topics.agg, 0)], lambda _: self._newest.clear())

    def refresh(self) -> Self:
        """Read up to the end of the topic, the first time from its beginning, as after the topic was created again.

        Raises:
            SinkUnavailableError: the topic can't be read now.
        """
        try:
            for records in self._tail.to_end():
                for point in self._mapper.newest(records):
                    self._newest.setdefault(point.measurement, {})[tuple(sorted(point.tags.items()))] = point
        except TallystreamError as error:
            raise SinkUnavailableError(*error.args) from error
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
        """Release the connection. The next `refresh` opens another one."""
        self._tail.close()
