"""What Spark tells of a finished batch (StreamingQueryProgress, as JSON), taken into the figures. Pure but for those.

The names are Spark's: "Monitoring Streaming Queries", Structured Streaming Programming Guide.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from tallystream.decoding import json_decoder
from tallystream_aggregator.table.rows import ShardRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.health.internal_metrics import Figures

OBSERVED = "table"
"""The name under which a batch's records of the shards are observed: `{"table": {"shards": [JSON, …]}}`."""

READ = "read"
"""The name under which a backlog's batch is observed: `{"read": {"records": N}}`, with those that were left out."""

_TOTALS = {"records": "records", "stale": "stale", "dead_letters": "dead", "forgotten": "forgotten"}
_NOW = ("lives", "disk", "living", "instances", "rows", "state_bytes")
_decode_shard = json_decoder(ShardRow)


class Progress:
    """Feeds the figures, batch by batch. A shard that a batch did not touch keeps what it said last."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._shards: dict[int, ShardRow] = {}
        self._batch: int | None = None

    def take(self, progress: Mapping[str, Any]) -> int | None:
        """Take one progress event; return the batch's number, None where nothing was to be done.

        Raises:
            KeyError, ValueError, msgspec.DecodeError: it is not as Spark writes it.
        """
        durations, number = progress["durationMs"], int(progress["batchId"])
        if "addBatch" not in durations:  # a trigger that found nothing
            return None
        figures = self._figures
        if number != self._batch:
            figures.add("tallystream.batches", 1)
            figures.add("tallystream.input.records", _records(progress))
            self._batch = number
        figures.set("tallystream.batch.number", number)
        figures.set("tallystream.batch.time_seconds", datetime.fromisoformat(progress["timestamp"]).timestamp())
        if took_ms := durations.get("triggerExecution"):
            figures.set("tallystream.batch.records_per_second", _records(progress) * 1000 / took_ms)
        for phase, ms in durations.items():
            figures.took("tallystream.batch.duration", ms / 1000, phase=phase)
        self._offsets(progress["sources"])
        operators = progress.get("stateOperators") or []
        if operators:
            figures.set("tallystream.state.rows", sum(int(one["numRowsTotal"]) for one in operators))
            figures.set("tallystream.state.memory_bytes", sum(int(one["memoryUsedBytes"]) for one in operators))
        self._table((progress.get("observedMetrics") or {}).get(OBSERVED, {}).get("shards") or ())
        return number

    def due_ms(self) -> dict[int, int]:
        """Return, by shard, when it has to look for silent lives next, in epoch ms; not of one that has none living."""
        return {number: row.due_ms for number, row in self._shards.items() if row.due_ms}

    def _offsets(self, sources: Iterable[Mapping[str, Any]]) -> None:
        for source in sources:
            for name, ends in (("tallystream.offset", "endOffset"), ("tallystream.end_offset", "latestOffset")):
                for topic, partitions in (source.get(ends) or {}).items():
                    for partition, offset in partitions.items():
                        self._figures.set(name, int(offset), topic=topic, partition=str(partition))

    def _table(self, observed: Iterable[str]) -> None:
        rows = [_decode_shard(text) for text in observed]
        if not rows:
            return
        self._shards = self._shards | {row.shard: row for row in rows}  # anew: other threads read it
        shards, figures = self._shards.values(), self._figures
        for name, field in _TOTALS.items():
            figures.set(f"tallystream.table.{name}", sum(getattr(row, field) for row in shards))
        for name in _NOW:
            figures.set(f"tallystream.table.{name}", sum(getattr(row, name) for row in shards))
        # Shards share their metrics: how many there are is known where there is one shard, else as a lower bound.
        figures.set("tallystream.table.metrics", max(row.metrics for row in shards))
        figures.set("tallystream.epoch", max(row.epoch for row in shards))
        clocks: dict[str, int] = {}
        for row in shards:
            clocks |= {name: max(clock, clocks.get(name, 0)) for name, clock in row.clocks.items()}
        for name, clock in clocks.items():
            topic, _, partition = name.rpartition(":")
            figures.set("tallystream.table.clock_seconds", clock / 1000, topic=topic, partition=partition)


def _records(progress: Mapping[str, Any]) -> int:
    read = (progress.get("observedMetrics") or {}).get(READ)
    return int(progress["numInputRows"] if read is None else read["records"] or 0)
