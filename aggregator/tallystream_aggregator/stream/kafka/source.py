"""Reads partitions with a consumer of librdkafka that joins no group."""

from __future__ import annotations

import time
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.stream.broker import Chunk, LostRecordsError, OffsetAndEpoch, Place, unknown
from tallystream_aggregator.stream.kafka.calls import MISSING, OUT_OF_RANGE, TRANSIENT, error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tallystream_aggregator.stream.broker import Bounds, Positions, RawRecord

MAX_CONSUMED = 1_000
"""The most messages that are consumed at a time: so many stay in a core's cache until they are rows."""

MAX_BYTES = 32 << 20
"""About the most bytes of values that are read at a time: a step of large records reads several times."""

_DEFAULTS = {
    "fetch.message.max.bytes": 8 << 20,
    "queued.min.messages": 50_000,
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 10,  # pause of fetching when the queue is full; the default is 1000
    "fetch.error.backoff.ms": 20,
}
_FIXED = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}


class KafkaSource:
    """A `stream.broker.Source`.

    Args:
        kafka: librdkafka's options, with `isolation.level`.
        group: the consumer group for authorization; nothing is committed.
        bounds: `stream.broker.Broker.bounds`.

    Raises:
        ConfigError: librdkafka rejects an option.
    """

    def __init__(
        self, kafka: Mapping[str, Any], group: str, bounds: Callable[[Collection[Place]], dict[Place, Bounds]]
    ) -> None:
        self._servers = kafka["bootstrap.servers"]
        self._bounds = bounds
        self._consumer = clients.consumer({**_DEFAULTS, **kafka, **_FIXED, "group.id": group})
        self._positions: Positions = {}
        self._place_of: Callable[[Any], Any] = _place_of
        self._places: dict[Any, Place] = {}

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read exactly these partitions from these positions on. What was fetched before is dropped."""
        self._positions = dict(positions)
        if len({place.topic for place in positions}) == 1:  # the usual case is read faster
            self._place_of, self._places = Message.partition, {place.partition: place for place in positions}
        else:
            self._place_of, self._places = _place_of, {place: place for place in positions}
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in positions.items()])

    def read(self, max_records: int, timeout_s: float) -> list[Chunk]:
        """Return what is there, as `stream.broker.Source.read` describes."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                message = self._consumer.poll(max(deadline - time.monotonic(), 0.0))
                chunks = [] if message is None else self._take(message, max_records)
            except KafkaException as error:
                raise error_of(self._servers, "records can't be read", error.args[0]) from error
            if chunks or time.monotonic() + 0.001 > deadline:  # librdkafka would not wait for a part of a millisecond
                return chunks

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()

    def _take(self, first: Any, max_records: int) -> list[Chunk]:
        """Return the first message and those that are in the queue."""
        rows: dict[Place, list[RawRecord]] = {}
        epoch_ends: dict[Place, list[OffsetAndEpoch]] = {}
        events: list[Any] = []
        messages, left, left_bytes = [first], max_records, MAX_BYTES
        while messages:
            failed = [message for message in messages if message.error() is not None]
            events += failed
            records = [message for message in messages if message.error() is None] if failed else messages
            # To group the records of one partition takes a tenth of the time of reading them.
            is_one = len(self._places) == 1 and records
            for of, some in zip(self._places, [records], strict=True) if is_one else groupby(records, self._place_of):
                run = list(some)
                added = [(message.offset(), message.timestamp()[1], message.key(), message.value()) for message in run]
                rows.setdefault(self._places[of], []).extend(added)
                _add_epoch_ends(epoch_ends.setdefault(self._places[of], []), run)
                left_bytes -= sum([len(row[3] or b"") for row in added])
            left -= len(messages)
            # consume() with a timeout waits until it has as many as requested, or for the whole timeout.
            messages = self._consumer.consume(min(left, MAX_CONSUMED), 0) if left > 0 and left_bytes > 0 else []
        ends = {place: some[-1][0] + 1 for place, some in rows.items()}
        for event in events:
            place = Place(event.topic() or "", -1 if event.partition() is None else event.partition())
            if place in self._positions and event.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                # Its offset is after the markers and the aborted records at the end. (`position` is one too high after
                # this event in several versions of librdkafka.)
                ends[place] = max(event.offset(), ends.get(place, 0))
        chunks = [
            Chunk(place, rows.get(place, ()), end, epoch_ends.get(place) or ())
            for place, end in ends.items()
            if end > self._positions[place]
        ]
        self._positions |= {chunk.place: chunk.end for chunk in chunks}
        for event in events:
            self._check(event)
        return chunks

    def _check(self, event: Any) -> None:
        """Raise the error of an event, unless the consumer goes on by itself."""
        error, place = event.error(), Place(event.topic() or "", event.partition())
        if error.code() == KafkaError._PARTITION_EOF or error.code() in TRANSIENT:  # noqa: SLF001
            return
        if error.code() not in MISSING | OUT_OF_RANGE:
            raise error_of(self._servers, f"topic {place.topic}: records can't be read", error)
        if place not in self._positions:
            return
        # Another broker than the leader may have said so, or one that has just started.
        position, bounds = self._positions[place], self._bounds([place]).get(place)
        if bounds is None:
            raise unknown(place)
        if not bounds.first <= position <= bounds.end:
            raise LostRecordsError(place, position, bounds)
        self.assign(self._positions)


def _add_epoch_ends(ends: list[OffsetAndEpoch], run: Sequence[Any]) -> None:
    """Add the last records of each epoch in a run of one partition, which follows what `ends` has."""
    first, last = run[0].leader_epoch(), run[-1].leader_epoch()
    if last is None:
        return
    if ends and ends[-1].epoch == first:
        ends.pop()
    if first != last:
        known = [OffsetAndEpoch(of.offset(), epoch) for of in run if (epoch := of.leader_epoch()) is not None]
        ends += [end for end, after in pairwise(known) if end.epoch != after.epoch]
    ends.append(OffsetAndEpoch(run[-1].offset(), last))


def _place_of(message: Any) -> tuple[str, int]:
    return message.topic(), message.partition()
