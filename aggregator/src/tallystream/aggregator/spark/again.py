"""Read records of the topic once more, in a Spark task: those of instances that compaction has to be undone for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.aggregator.spark.cutting import Range
from tallystream.aggregator.spark.ranges import Reading, read_range
from tallystream.aggregator.table.inputs import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream.aggregator.table.unfolding import Span


class SpanReader:
    """Reads spans of offsets. Sent to Spark's workers, so it holds no connection."""

    def __init__(self, reading: Reading) -> None:
        # What is gone is an error here, and never passed over: the batch has it.
        self._reading = reading._replace(go_on=False)

    def __call__(self, span: Span) -> Iterator[Record]:
        """Yield the records of a span in offset order.

        Raises:
            LostRecordsError: some are gone.
            TallystreamError: the broker sent none for too long.
            KafkaException: the broker refused.
        """
        wanted = Range(span.topic, span.partition, span.first, span.last + 1)
        for chunk in read_range(self._reading, wanted):
            for row in chunk.rows():
                yield Record(span.topic, span.partition, *row)
