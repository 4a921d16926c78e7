"""A process that runs one task of the loop until SIGTERM, as Spark and a driver run it, with a checkpoint in files.

    cd tests; python -m support.stream_process TASK

TASK is the JSON of a `Task`. Each epoch is a batch: its state counts when it is committed. The process ends with
`REPLACED` when a newer generation has the lease.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support.simulation.checkpoints import Batch, BatchTakenError
from tallystream.signals import SignalSafeEvent
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.stream.between import Between
from tallystream_aggregator.stream.broker import FencedError
from tallystream_aggregator.stream.combiner_loop import CombinerLoop
from tallystream_aggregator.stream.kafka import KafkaBroker
from tallystream_aggregator.stream.kafka_calls import Timeouts
from tallystream_aggregator.stream.layout import LoopId
from tallystream_aggregator.stream.loop import LoopSettings, ShardLoop

if TYPE_CHECKING:
    from tallystream_aggregator.stream.epochs import EpochLoop

log = logging.getLogger(__name__)

REPLACED = 3
"""The exit code of a process that a newer one has replaced."""

KEPT = 10
"""How many batches a checkpoint keeps."""

BACK_OFF_S = 0.5


@dataclass(frozen=True)
class Task:
    """The task `shard` of `shards`, or of the combiner if `shard` is `shards`, of the driver with this generation.

    `checkpoint` is its folder, and `lease` a file with the generation that has the lease.
    """

    servers: str
    prefix: str
    shard: int
    shards: int
    generation: int
    checkpoint: str
    lease: str
    epoch_s: float
    spacing_s: float

    def has_lease(self) -> bool:
        """Tell whether its driver is the newest one."""
        return Path(self.lease).read_text(encoding="utf-8") == str(self.generation)

    def loop(self, broker: KafkaBroker, stopped: SignalSafeEvent) -> EpochLoop:
        """Return a new loop."""
        loop = LoopId(Topics(self.prefix), self.shard, self.shards)
        if self.shard == self.shards:
            return CombinerLoop(loop, broker, time, stopped.is_set, spacing_s=self.spacing_s)
        return ShardLoop(LoopSettings(loop, spacing_s=self.spacing_s), broker, time, stopped.is_set)


class FileCheckpoint:
    """A checkpoint directory: a folder for each committed batch, which has a file for the head and for each entry."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def newest(self) -> Path | None:
        """Return the folder of the last committed batch, or None."""
        numbers = [int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()]
        return self._folder / str(max(numbers)) if numbers else None

    def begin(self) -> Batch:
        """Return an attempt of the next batch."""
        newest = self.newest()
        if newest is None:
            return Batch(0)
        found = {path.name: path.read_bytes() for path in newest.iterdir()}
        head = found.pop("head")
        return Batch(int(newest.name) + 1, head or None, {int(name): entry for name, entry in found.items()})

    def commit(self, batch: Batch) -> None:
        """Make an attempt the committed one of its batch. A kill leaves all of it or nothing.

        Raises:
            BatchTakenError: the batch is committed, or the batch before it is not.
        """
        newest = self.newest()
        if batch.number != (0 if newest is None else int(newest.name) + 1):
            raise BatchTakenError(f"batch {batch.number} comes after {newest}")
        written = Path(tempfile.mkdtemp(prefix="attempt-", dir=self._folder))
        (written / "head").write_bytes(batch.stored_head or b"")
        for number, entry in batch.entries.items():
            (written / str(number)).write_bytes(entry)
        try:
            written.rename(self._folder / str(batch.number))
        except OSError as error:
            raise BatchTakenError(f"batch {batch.number} is committed: {error}") from error
        shutil.rmtree(self._folder / str(batch.number - KEPT), ignore_errors=True)


def run(task: Task, stopped: SignalSafeEvent) -> None:
    """Run epochs until a stop, and while the driver of the task has the lease."""
    options = {"bootstrap.servers": task.servers}
    broker = KafkaBroker(options, Selection(Topics(task.prefix).metrics), "tests", Timeouts(stopped=stopped.is_set))
    checkpoint, attempt, loop = FileCheckpoint(Path(task.checkpoint)), 0, task.loop(broker, stopped)
    while not stopped.is_set():
        if not task.has_lease():
            sys.exit(REPLACED)
        batch = checkpoint.begin()
        try:
            report = loop.run_epoch(batch, (task.generation, attempt), task.epoch_s)
        except FencedError as error:
            log.info("attempt %d was fenced: %s", attempt, error)
            attempt, loop = attempt + 1, task.loop(broker, stopped)
            stopped.wait(BACK_OFF_S)
            continue
        log.info("batch %d of generation %d: %s", batch.number, task.generation, report)
        between = Between(loop, task.epoch_s)
        try:
            checkpoint.commit(batch)
        except BatchTakenError as error:  # by a process that was replaced at that moment, or that replaces this one
            log.info("the next batch begins again: %s", error)
        finally:
            between.end()
    loop.close()


def main() -> None:
    """Run the task of the command line."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    stopped = SignalSafeEvent()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    run(Task(**json.loads(sys.argv[1])), stopped)


if __name__ == "__main__":
    main()
