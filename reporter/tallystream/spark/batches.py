"""What Spark's progress says about a batch, and which offsets a query has not counted yet. No Spark, no Kafka.

The progress is JSON, which is the same in all versions of Spark and with Spark Connect. Spark reports a batch after it
has committed it. If the driver is killed between the two, the batch is never reported: the next one then starts after
the end of the last batch that was counted, and the offsets between them are counted with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream.kafka.group_offsets import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch that a query has committed.

    `query` is the query's name, or its ID if it has none. `rows` is Spark's number of rows over all sources, and
    `kafka_rows` over its Kafka sources. `starts` and `ends` have the offsets of these sources: the batch has the
    offsets start <= offset < end. Spark reports no start of partitions that the query reads for the first time. In the
    first batch of a query these are all, and `starts` is None.
    `watermark` is in epoch seconds, None if the query has none.
    """

    query: str
    query_id: str
    run_id: str
    number: int
    rows: int
    seconds: float
    state_rows: int
    state_bytes: int
    watermark: float | None
    kafka_rows: int
    starts: dict[Partition, int] | None
    ends: dict[Partition, int]

    @property
    def without_start(self) -> set[Partition]:
        """The partitions for which Spark reports no start."""
        return self.ends.keys() - (self.starts or {}).keys()


def read_progress(text: str) -> Batch:
    """Return the batch of a `StreamingQueryProgress`, given as JSON."""
    progress = json.loads(text)
    sources = progress["sources"]
    kafka = [one for one in sources if one["description"].startswith("Kafka") and one.get("endOffset")]
    is_first = any(one.get("startOffset") is None for one in kafka)
    operators = progress["stateOperators"]
    return Batch(
        query=progress.get("name") or progress["id"],
        query_id=progress["id"],
        run_id=progress["runId"],
        number=progress["batchId"],
        rows=_rows(sources),
        seconds=max(progress["batchDuration"], 0) / 1000,
        state_rows=sum(one["numRowsTotal"] for one in operators),
        state_bytes=sum(one["memoryUsedBytes"] for one in operators),
        watermark=_watermark(progress.get("eventTime", {}).get("watermark")),
        kafka_rows=_rows(kafka),
        starts=None if is_first else _offsets(one["startOffset"] for one in kafka),
        ends=_offsets(one["endOffset"] for one in kafka),
    )


def _rows(sources: Iterable[Mapping[str, Any]]) -> int:
    return sum(max(one.get("numInputRows") or 0, 0) for one in sources)


def _watermark(text: str | None) -> float | None:
    seconds = datetime.fromisoformat(text).timestamp() if text else 0.0
    return seconds or None  # before the first event the watermark is 1970-01-01


def _offsets(sources: Iterable[Any]) -> dict[Partition, int]:
    """Return the offsets of all sources. If two of them read the same partition, the lower offset counts."""
    lowest: dict[Partition, int] = {}
    for source in sources:
        for topic, partitions in (json.loads(source) if isinstance(source, str) else source).items():
            for number, offset in partitions.items():
                at = (topic, int(number))
                lowest[at] = min(lowest.get(at, offset), offset)
    return lowest


def starts_of(batch: Batch, beginnings: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return where a batch started in each partition. `beginnings` are the first offsets of those without a start.

    A partition that was added later is read from its beginning. The first batch of a query may start anywhere: it has
    as many offsets as rows, but none before the beginnings, since a query may read each row several times. That is
    exact if the batch has no rows, if it has all offsets from the beginnings, or if only one partition has rows and
    each is read once.
    """
    starts = dict(batch.starts or {})
    rows = max(batch.kafka_rows - sum(batch.ends.get(at, start) - start for at, start in starts.items()), 0)
    for at in sorted(batch.without_start):
        end, first = batch.ends[at], beginnings.get(at, 0)
        if batch.starts is not None and at in beginnings:
            starts[at] = first
        else:
            taken = min(max(end - first, 0), rows)
            starts[at] = end - taken
            rows -= taken
    return starts


class Uncounted(NamedTuple):
    """What a batch adds to the counts: the number of batches, and from where to where in each partition."""

    batches: int
    spans: dict[Partition, tuple[int, int]]

    @property
    def records(self) -> int:
        """The number of offsets."""
        return sum(end - start for start, end in self.spans.values())


class CountedOffsets:
    """How far a query has been counted.

    Args:
        ends: the next offset of each partition that is not counted. A partition that is missing has not been counted.
        batch: the last batch that is counted, or None.
    """

    def __init__(self, ends: Mapping[Partition, int] | None = None, batch: int | None = None) -> None:
        self.ends = dict(ends or {})
        self.batch = batch
        self._run_id = ""

    def add(self, batch: Batch, beginnings: Mapping[Partition, int] | None = None) -> Uncounted | None:
        """Return what is not counted yet, up to the end of this batch, and treat it as counted.

        Returns None if the batch itself has been counted: this run has reported it before. Offsets that Spark processed
        again, since someone took the checkpoint back, are counted again. `beginnings` has the first offsets of the
        partitions `without_start`, as far as they are known.
        """
        last, is_same_run = self.batch, batch.run_id == self._run_id
        if is_same_run and last is not None and batch.number <= last:
            return None
        starts = starts_of(batch, beginnings or {})
        spans = {}
        for at, end in batch.ends.items():
            start = min(starts[at], self.ends.get(at, starts[at]))
            if start <= end:
                spans[at] = start, end
        self.ends = dict(batch.ends)  # without partitions that Spark does not read any more
        self.batch, self._run_id = batch.number, batch.run_id
        return Uncounted(1 if last is None else max(batch.number - last, 1), spans)
