"""The task of an epoch: it runs a loop in a Python worker of Spark, which keeps it between epochs.

A Python worker keeps the loops of its shards between epochs, with their tables and connections. A thread goes on with
the steps while Spark commits the state and begins the next epoch. Spark may run that in another worker, or run an epoch
again. The head of the log tells whether the table in memory continues the stored one. Otherwise the loop begins again
at what is published.

The state is stored at the end of an epoch, and not before it: the lives that change do so every few seconds, so they
would be stored again and again. Steps go on while a large state is stored. What they change is stored last.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext

from tallystream_aggregator.stream.combiner_loop import CombinerLoop
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.stream.kafka.calls import Timeouts
from tallystream_aggregator.stream.loop import ShardLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream_aggregator.kafka.topic_selection import Selection
    from tallystream_aggregator.stream.broker import Broker
    from tallystream_aggregator.stream.epochs import EpochLoop, EpochRow
    from tallystream_aggregator.stream.positions import Claim
    from tallystream_aggregator.stream.restore import LoopSettings
    from tallystream_aggregator.table.storage import Store

FIRST_EPOCH_S = 1.0
"""The greatest length of a loop's first epoch in a process, and after one that was not committed.

So the table is soon stored, and what prevents it is soon known: Spark runs a task four times.
"""

CHECK_EVERY_S = 0.05
"""How often the file that requests a stop is looked for."""


@dataclass(frozen=True, slots=True)
class EpochSettings:
    """What the tasks of a query need. It is sent to the Python workers.

    `first` are the settings of the first shard's loop. Those of the others differ in their number. `generation` is that
    of the query's driver. An epoch lasts up to `epoch_s` seconds, or until the file `stop_file` exists.
    """

    first: LoopSettings
    generation: int
    stop_file: str
    epoch_s: float = 60.0


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """Makes the access to Kafka in a task's process. It has the options, the topics to read, and the group."""

    kafka: Mapping[str, str] = field(repr=False)
    selection: Selection
    group: str

    def __call__(self, stopped: Callable[[], bool]) -> KafkaBroker:
        """Return a broker whose calls end early if `stopped` returns True."""
        return KafkaBroker(self.kafka, self.selection, self.group, Timeouts(stopped=stopped))


class _Loop:
    """A loop in this process after an epoch, and the generation of its driver.

    A thread goes on with it until `end` is called, and no other thread may use it meanwhile. The thread also ends with
    a stop, which the driver requests when its query has ended, and when the loop is fenced.
    """

    def __init__(self, loop: EpochLoop, generation: int) -> None:
        self.loop, self.generation = loop, generation
        self._next = threading.Event()
        target = partial(loop.run_between, self._next.is_set)
        self._thread = threading.Thread(target=target, name="tallystream-between", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait for the end of the running step."""
        self._next.set()
        self._thread.join()


_in_memory: dict[tuple[str, int], _Loop] = {}
"""(name of `metrics-table`, shard) → its loop."""


class EpochTask:
    """Runs loops for an epoch.

    `broker` makes the access to Kafka in the task's process. It is given the function that tells whether a stop is
    requested.
    """

    def __init__(
        self,
        settings: EpochSettings,
        broker: Callable[[Callable[[], bool]], Broker],
        *,
        claim: Callable[[int], Claim] | None = None,
    ) -> None:
        self._settings, self._broker, self._claim = settings, broker, claim or task_claim

    def __call__(self, shard: int, store: Store) -> EpochRow:
        """Run the loop of a shard, or the combiner's, for an epoch, and store its state."""
        settings, generation = self._settings, self._settings.generation
        name = (settings.first.loop.topics.table, shard)
        found = _in_memory.pop(name, None)  # if the epoch fails, a new loop begins
        if found is not None:
            found.end()
            if found.generation != generation:
                found.loop.close()
                found = None
        loop = self._new_loop(shard) if found is None else found.loop
        continues = found is not None and loop.is_current(store)
        seconds = settings.epoch_s if continues else min(FIRST_EPOCH_S, settings.epoch_s)
        row = loop.run_epoch(store, self._claim(generation), seconds)
        _in_memory[name] = _Loop(loop, generation)
        return row

    def _new_loop(self, number: int) -> EpochLoop:
        first, stopped = self._settings.first, StopFile(self._settings.stop_file)
        broker, loop = self._broker(stopped), first.loop._replace(number=number)
        if number < loop.shards:
            return ShardLoop(replace(first, loop=loop), broker, time, stopped)
        return CombinerLoop(loop, broker, time, stopped, spacing_s=first.spacing_s)


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
