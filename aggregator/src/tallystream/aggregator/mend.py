"""Put right what a writer that was replaced wrote after us: on a compacted topic the last record of a key stays.

Readers take the highest (epoch, batch), but compaction keeps the last record, which may be a lower epoch's, or one of
an epoch that no writer has taken. So the active writer looks at what is appended and, where such a record has come,
appends the newest one of its key again. A stopped writer has one batch at hand, which we ran again when we took over:
so the newest record of each of its keys lies behind the place at which we began. The topics' `min.compaction.lag.ms`
keeps it there until that is done.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream.aggregator import clients
from tallystream.aggregator.delivering import Outgoing, deliver, producer_for
from tallystream.aggregator.watermarks import watermarks
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tallystream.aggregator.epochs import Epochs

log = logging.getLogger(__name__)

_VERSION = re.compile(rb'"epoch":(\d+)(?:,"batch":(\d+))?\}$')  # batch 0 is left out

Version = tuple[int, int]
"""(epoch, batch)"""


def version_of(value: bytes) -> Version | None:
    """Return the writer of a record without reading the rest of it; None where the record does not end with one."""
    found = _VERSION.search(value, max(0, len(value) - 64))
    return None if found is None else (int(found[1]), int(found[2] or 0))


class Watch:
    """Looks at a topic of one partition from its present end on; for one thread. `epoch` is ours, `timeout` in seconds.

    Delivery: what is appended again is what was there; a record that is appended twice says the same.
    """

    def __init__(
        self, topic: str, kafka: Mapping[str, str], epochs: Epochs, *, epoch: int, timeout: float = 10.0
    ) -> None:
        self._topic = topic
        self._epochs = epochs
        self._epoch = epoch
        self._timeout = timeout
        self._producer = producer_for(kafka, timeout=timeout)
        self._consumer = clients.consumer(
            {
                **kafka,
                "group.id": "tallystream-mend",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        self._begin = self._at = self._end()

    def look(self) -> int:
        """Read what has come since the last look, put right what has to be, and return how many keys that were.

        Raises:
            KafkaException: the broker did not answer, or take a record, in time; the next look tries again.
        """
        at = self._at
        try:
            return self._look(at) if self._end() > at else 0
        except KafkaException:
            self._at = at
            raise

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()

    def _look(self, at: int) -> int:
        read = [(key, version[0]) for key, value in self._read(at) if value and (version := version_of(value))]
        bound = self._bound(epoch for _, epoch in read)
        stale = {key for key, epoch in read if not self._epoch <= epoch <= bound}
        if stale:
            log.warning(
                "%s: a writer that was replaced, or that has taken no epoch, has written %d keys; they are put right",
                self._topic,
                len(stale),
            )
            seen = self._at
            forged = {key for key, epoch in read if epoch > bound}
            while wrong := self._wrong(stale, forged, bound):
                self._append(wrong)
            self._at = seen  # others may have been written since
        return len(stale)

    def _bound(self, epochs: Iterable[int]) -> int:
        """Return the highest epoch that is a writer's, which may be of our successor."""
        try:
            return max(self._epoch, self._epochs.bound(epochs))
        except TallystreamError as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error))) from error  # noqa: SLF001

    def _wrong(self, keys: set[bytes], forged: set[bytes], bound: int) -> dict[bytes, bytes | None]:
        """Return the newest record of each of the keys of which it is not the last.

        Of `forged` keys, which no replaced writer wrote, the newest may lie before the place at which we began. It is
        appended under our epoch: under its own it would count as that of a replaced writer.
        """
        last: dict[bytes, bytes | None] = {}
        newest = self._newest(keys, self._begin, self._epoch, bound, last)
        if before := forged - newest.keys():
            found = self._newest(before, 0, 0, bound, last)
            newest |= {key: value and _VERSION.sub(b'"epoch":%d}' % self._epoch, value) for key, value in found.items()}
        return {key: value for key, value in newest.items() if last[key] != value}

    def _newest(
        self, keys: set[bytes], begin: int, epoch: int, bound: int, last: dict[bytes, bytes | None]
    ) -> dict[bytes, bytes | None]:
        """Return the newest record of each of the keys from `begin` on, where the writer's epoch is `epoch`.

        `last` is given the last one of each. A deletion is final: a key that was deleted never comes back
        (tallystream.aggregator.table.published).
        """
        newest: dict[bytes, tuple[Version, bytes | None]] = {}
        for key, value in self._read(begin):
            version = (2**63, 0) if value is None else version_of(value) or (-1, 0)
            current = value is None or epoch <= version[0] <= bound
            if current and value is not None:
                epoch = version[0]
            if key in keys:
                last[key] = value
                if current and version >= newest.get(key, ((0, 0), None))[0]:
                    newest[key] = (version, value)
        return {key: value for key, (_, value) in newest.items()}

    def _append(self, records: Mapping[bytes, bytes | None]) -> None:
        outgoing = (Outgoing(self._topic, key, value) for key, value in records.items())
        deliver(self._producer, outgoing, timeout=self._timeout)

    def _end(self) -> int:
        return watermarks(self._consumer, TopicPartition(self._topic, 0), timeout=self._timeout)[1]

    def _read(self, begin: int) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the records from `begin` to the present end; after that, `_at` is the place after the last one."""
        end = self._end()
        self._consumer.assign([TopicPartition(self._topic, 0, begin)])
        self._at = begin
        # The event of the partition's end tells of a fetch that found nothing: where records keep coming, it does not.
        while self._at < end:
            message = self._consumer.poll(self._timeout)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 (librdkafka's name for it)
            error = message.error()
            if error is None:
                self._at = (message.offset() or 0) + 1
                yield message.key() or b"", message.value()
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                break
            else:
                raise KafkaException(error)
        self._consumer.unassign()
