"""Read records of the topic again in a Spark task: those of instances whose compaction is undone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.spark.catch_up.reader import Reading, read_range
from tallystream_aggregator.spark.catch_up.splits import Range
from tallystream_aggregator.table.decode import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.table.compaction import Span


class SpanReader:
    """Reads spans of offsets. Sent to Spark's workers, so it holds no connection."""

    def __init__(self, reading: Reading) -> None:
        # Lost records are an error here even with `go_on`: the batch has read them once.
        self._reading = reading._replace(go_on=False)

    def __call__(self, span: Span) -> Iterator[Record]:
        """Yield the records of a span in offset order.

        Raises:
            LostRecordsError: some are gone.
            TallystreamError: the broker sent none for too long.
            KafkaException: the broker refused.
        """
        wanted = Range(span.topic, span.partition, span.first, span.last + 1)
        for rows in read_range(self._reading, wanted):
            for row in rows:
                yield Record(span.topic, span.partition, *row)
