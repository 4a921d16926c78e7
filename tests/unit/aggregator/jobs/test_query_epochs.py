"""What the driver notes of the finished epochs of its queries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tallystream.testing import ManualClock
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.jobs.aggregate.query_watch import QueryWatch
from tallystream_aggregator.spark.epochs.processor import cells
from tallystream_aggregator.spark.epochs.task import EPOCH_ROW
from tallystream_aggregator.stream.epochs import EpochRow

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

AT = {"metrics": {"0": 5}}


class Query:
    """A query whose progress is that of the batch that ended last."""

    def __init__(self) -> None:
        self.lastProgress: dict[str, Any] | None = None

    def end(self, batch: int, *rows: EpochRow) -> StreamingQuery:
        """End a batch."""
        shards = [dict(zip(EPOCH_ROW.names, cells(row), strict=True)) for row in rows]
        self.lastProgress = {
            "batchId": batch,
            "timestamp": "1970-01-01T00:00:02.500Z",
            "observedMetrics": {"epochs": {"shards": shards}},
        }
        return self  # type: ignore[return-value]  # what is used of it


def watch(health: Health) -> QueryWatch:
    """Return what follows the query of two shards, without a broker."""
    tail: Any = SimpleNamespace(positions={}, shards={}, places=[None] * 3)
    generations: Any = SimpleNamespace(now=2)
    unused: Any = None
    return QueryWatch(
        tail,
        generations,
        broker=unused,
        append_clocks=unused,
        commit_offsets=unused,
        health=health,
        begin={},
        otlp=(),
    )


@pytest.fixture
def health() -> Health:
    return Health("aggregate", HealthSettings(), clock=ManualClock())


def test_each_finished_epoch_is_noted_once(health: Health) -> None:
    """Another query begins at the batch that the one before did not finish."""
    epochs, query = watch(health), Query()
    epochs.reset()
    epochs.look(query)  # type: ignore[arg-type]
    for batch in (7, 7, 8):
        epochs.look(query.end(batch, EpochRow(0, positions=AT)))
    epochs.reset()
    epochs.look(query.end(8, EpochRow(0, positions=AT)))
    assert epochs.epochs == 3


def test_the_last_epoch_is_the_one_in_which_every_loop_saw_the_request_to_stop(health: Health) -> None:
    """One that had ended before it goes on with its steps, and the next epoch stores them."""
    epochs, query, told = watch(health), Query(), []
    for batch, stopped in enumerate(((False, False), (True, False), (True, True))):
        epochs.look(query.end(batch, *(EpochRow(shard, stopped=one) for shard, one in enumerate(stopped))))
        told.append(epochs.stopped)
    assert told == [False, False, True]


def test_a_loop_that_waits_for_the_broker_is_alive_and_not_ready(health: Health) -> None:
    """Its epochs end without positions. Their number shows that it is not stuck."""
    epochs, query, ready = watch(health), Query(), []
    epochs.reset()
    for batch, positions in enumerate((AT, {}, {}, AT)):
        epochs.look(query.end(batch, EpochRow(0, positions=AT), EpochRow(1, positions=positions)))
        ready.append(health.status.unready_reason() is None)
    assert ready == [True, False, False, True]
    assert health.status.unhealthy_reason() is None


def test_the_metrics_have_the_rows_of_all_shards(health: Health) -> None:
    """They are added up."""
    rows = [
        EpochRow(0, steps=2, restarts=1, seconds=60.0, waited_s=50.0, state_bytes=5, positions=AT),
        EpochRow(1, steps=3, seconds=59.0, waited_s=20.0, state_bytes=6, positions=AT),
    ]
    watch(health).look(Query().end(0, *rows))
    lines = [line for line in health.metrics().text.splitlines() if not line.startswith("#")]
    found = {line.split("{")[0]: float(line.split()[-1]) for line in lines}
    assert (found["tallystream_steps_total"], found["tallystream_restarts_total"]) == (5, 1)
    assert found["tallystream_table_state_bytes"] == 11
