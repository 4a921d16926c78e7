"""A loop as a Spark stateful processor: one call runs the loop for an epoch, and stores the state at its end.

A Python worker keeps the loops of its shards between epochs, with their tables and connections. A thread goes on with
the steps while Spark commits the state and begins the next epoch. Spark may run that in another worker, or run an epoch
again. The head of the log tells whether the table in memory continues the stored one. Otherwise the loop begins again
at what is published.

The state is stored at the end of an epoch, and not in slices before it: the lives that change do so every few seconds,
so each slice would store most of them again.
"""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BooleanType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from tallystream_aggregator.spark.epochs.store import SparkStore
from tallystream_aggregator.stream.between import Between
from tallystream_aggregator.stream.combiner_loop import CombinerLoop, CombinerSettings
from tallystream_aggregator.stream.kafka import KafkaBroker
from tallystream_aggregator.stream.kafka_calls import Timeouts
from tallystream_aggregator.stream.layout import loop_id
from tallystream_aggregator.stream.loop import LoopSettings, ShardLoop
from tallystream_aggregator.stream.positions import ByTopic, Claim, by_topic
from tallystream_aggregator.stream.restore import Begin
from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.table.sum_tags import SumTags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

    from tallystream_aggregator.kafka.topic_selection import Selection
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.stream.broker import Broker, Positions
    from tallystream_aggregator.stream.epochs import EpochLoop

FIRST_EPOCH_S = 1.0
"""The greatest length of a loop's first epoch in a process, and after one that was not committed.

So the table is soon stored, and what prevents it is soon known: Spark runs a task four times.
"""

CHECK_EVERY_S = 0.05
"""How often the file that requests a stop is looked for."""

# Not DDL text: Python would call Spark's JVM to parse it.
EPOCH_ROW = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("steps", LongType()),
        StructField("records", LongType()),
        StructField("sums", LongType()),
        StructField("rows", LongType()),
        StructField("restarts", LongType()),
        StructField("seconds", DoubleType()),
        StructField("waited_s", DoubleType()),
        StructField("state_bytes", LongType()),
        StructField("stopped", BooleanType()),
        StructField("positions", StringType()),
    ]
)
"""The row that a shard returns for each epoch: what it did, and the JSON of `EpochRow.positions`."""


class EpochRow(msgspec.Struct, frozen=True):
    """What a shard, or the combiner after the last one, did since the end of the epoch before: counts and seconds.

    `positions` map topic → partition → the next offset to read, all of which is published. They are empty if the epoch
    ended before the published positions were reached.
    """

    shard: int
    steps: int = 0
    records: int = 0
    sums: int = 0
    rows: int = 0
    restarts: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0
    state_bytes: int = 0
    stopped: bool = False
    positions: ByTopic = {}

    def cells(self) -> tuple[Any, ...]:
        """Return the values of the columns of `EPOCH_ROW`."""
        *counts, positions = msgspec.structs.astuple(self)
        return (*counts, msgspec.json.encode(positions).decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSettings:
    """What the tasks of a query need. It is sent to the Python workers.

    A new table begins at `begin`, has this number of `shards`, and sums with the tags `sum_tags`. `generation` is that
    of the query's driver. An epoch lasts up to `epoch_s` seconds, or until the file `stop_file` exists. The other
    settings are those of `LoopSettings`.
    """

    topics: Topics
    generation: int
    stop_file: str
    begin: Positions
    shards: int = 1
    sum_tags: SumTags = field(default_factory=SumTags)
    table: TableSettings = field(default_factory=TableSettings)
    spacing_s: float = 0.5
    epoch_s: float = 60.0
    max_rate: int | None = None
    skip_lost: bool = False

    @property
    def loops(self) -> int:
        """The number of loops: one for each shard, and the combiner of several shards."""
        return self.shards if self.shards == 1 else self.shards + 1

    def shard(self, number: int) -> LoopSettings:
        """Return the settings of a shard's loop."""
        return LoopSettings(
            self.topics,
            Begin(number, self.shards, self.sum_tags, dict(self.begin)),
            loop_id(self.topics, number),
            self.table,
            self.spacing_s,
            max_rate=self.max_rate,
            skip_lost=self.skip_lost,
        )

    def combiner(self) -> CombinerSettings:
        """Return the settings of the combiner's loop."""
        return CombinerSettings(self.topics, self.shards, loop_id(self.topics, self.shards), self.spacing_s)


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """Makes the access to Kafka in a task's process. It has the options, the topics to read, and the group."""

    kafka: Mapping[str, str] = field(repr=False)
    selection: Selection
    group: str

    def __call__(self, stopped: Callable[[], bool]) -> KafkaBroker:
        """Return a broker whose calls end early if `stopped` returns True."""
        return KafkaBroker(self.kafka, self.selection, self.group, Timeouts(stopped=stopped))


class _Loop(NamedTuple):
    """A loop in this process after an epoch, and the generation of its driver."""

    loop: EpochLoop
    generation: int
    between: Between


_in_memory: dict[tuple[str, int], _Loop] = {}
"""(name of `metrics-table`, shard) → its loop."""


class EpochProcessor(StatefulProcessor):
    """Runs a shard's loop for an epoch in each batch, stores its state, and returns one `EPOCH_ROW`.

    `broker` makes the access to Kafka in the task's process. It is given the function that tells whether a stop is
    requested.

    Delivery: that of `stream.loop.ShardLoop`. It does not depend on Spark: a batch that runs twice, or in two places,
    publishes nothing twice.
    """

    def __init__(
        self,
        settings: EpochSettings,
        broker: Callable[[Callable[[], bool]], Broker],
        *,
        claim: Callable[[int], Claim] | None = None,
    ) -> None:
        self._settings, self._broker, self._claim = settings, broker, claim or task_claim

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the shard's log."""
        self._store = SparkStore(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[pd.DataFrame]:
        """Run the loop with the number `key` for an epoch."""
        for _ in rows:
            pass  # the tick
        # The table has millions of objects and no cycles. So nothing is collected while the loop runs. What is there at
        # the end is frozen, as PySpark's worker collects after each task.
        gc.disable()
        row = self.run_epoch(int(key[0]))
        gc.collect()
        gc.freeze()
        # Not at the top: Spark imports this module in another Python process when a query starts. That process needs no
        # pandas, whose import takes 0.3 s.
        import pandas as pd

        yield pd.DataFrame([row.cells()], columns=EPOCH_ROW.names, dtype=object)

    def close(self) -> None:
        """Nothing is held open for Spark between epochs."""

    def run_epoch(self, shard: int) -> EpochRow:
        """Run the loop of a shard, or the combiner's, for an epoch."""
        settings, generation = self._settings, self._settings.generation
        name = (settings.topics.table, shard)
        found = _in_memory.pop(name, None)  # if the epoch fails, a new loop begins
        if found is not None:
            found.between.end()
            if found.generation != generation:
                found.loop.close()
                found = None
        loop = self._new_loop(shard) if found is None else found.loop
        continues = found is not None and loop.is_current(self._store)
        seconds = settings.epoch_s if continues else min(FIRST_EPOCH_S, settings.epoch_s)
        report = loop.run_epoch(self._store, self._claim(generation), seconds)
        _in_memory[name] = _Loop(loop, generation, Between(loop, settings.epoch_s))
        return EpochRow(
            shard=shard,
            steps=report.steps,
            records=report.records,
            sums=report.sums,
            rows=report.rows,
            restarts=report.restarts,
            seconds=round(report.seconds, 3),
            waited_s=round(report.waited_s, 3),
            state_bytes=report.state_bytes,
            stopped=report.stopped,
            positions=by_topic(report.positions),
        )

    def _new_loop(self, number: int) -> EpochLoop:
        settings, stopped = self._settings, StopFile(self._settings.stop_file)
        broker, timer = self._broker(stopped), SystemTimer()
        if number < settings.shards:
            return ShardLoop(settings.shard(number), broker, timer, stopped)
        return CombinerLoop(settings.combiner(), broker, timer, stopped)


def task_claim(generation: int) -> Claim:
    """Return the claim of this task: the generation, and Spark's ID of the attempt.

    Within a driver, a later attempt has a higher ID, whatever is run again: a task, a stage or the whole query.

    Raises:
        RuntimeError: this is not a task of Spark.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("the ID of the attempt is only known in a task of Spark")
    return generation, context.taskAttemptId()


class SystemTimer:
    """`stream.loop.Timer` of this process."""

    def monotonic(self) -> float:
        """Return seconds that never decrease."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class StopFile:
    """Tells whether a file exists that requests a stop. It ends this process if its parent process is gone.

    Then Spark is gone, too: nobody would take the state, and nobody could request a stop.
    """

    def __init__(self, path: str) -> None:
        self._path, self._parent = path, os.getppid()
        self._checked_s, self._found = float("-inf"), False

    def __call__(self) -> bool:
        """Return whether a stop is requested. The answer may be `CHECK_EVERY_S` old."""
        now_s = time.monotonic()
        if now_s - self._checked_s >= CHECK_EVERY_S:
            self._checked_s = now_s
            if os.getppid() != self._parent:
                os._exit(1)
            self._found = os.path.exists(self._path)  # noqa: PTH110 (it is called twenty times a second)
        return self._found
