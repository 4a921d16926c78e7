"""`tallystream aggregate` whose query runs without Spark: the same command, driver and loops, in a tenth of the time.

    python tests/support/without_spark.py aggregate …

`up` and `demo` start this `aggregate`.

A thread runs each loop for an epoch and keeps its state in files, as a task of Spark does. What only Spark can break,
such as a killed worker, is in tests/integration/test_aggregate_faults.py.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from tallystream_aggregator.spark.epochs.processor import EpochProcessor
    from tallystream_aggregator.stream.epochs import EpochRow

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.simulation.checkpoints import Batch, BatchTakenError
from tallystream_aggregator.jobs.aggregate import driver, job
from tallystream_cli import main

KEPT = 10
"""How many batches a checkpoint keeps."""

_attempts = count(1)


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


class Query:
    """Runs the loops, each in a thread, in batches that all of them finish. `lastProgress` is that of the newest."""

    lastProgress: dict[str, Any] | None = None  # noqa: N815 (Spark's name)

    def __init__(self, _session: object, processor: EpochProcessor, loops: int, checkpoint: Path) -> None:
        self._error: Exception | None = None
        self._tasks: list[Any] = [copy.copy(processor._run) for _ in range(loops)]
        self._checkpoints = [FileCheckpoint(checkpoint / "state" / str(number)) for number in range(loops)]
        (checkpoint / "offsets").mkdir(exist_ok=True)  # of Spark, at the first batch
        self._stopped, self._attempt = threading.Event(), next(_attempts)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        return self._thread.is_alive()

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        """Stop it after the running batch."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with ThreadPoolExecutor(len(self._tasks)) as pool:
            while not self._stopped.is_set():
                try:
                    began_s = time.time()
                    rows = list(pool.map(self._epoch, range(len(self._tasks))))
                    self._report(rows, began_s)
                except Exception as error:  # noqa: BLE001 (as Spark reports it)
                    kind = type(error)
                    self._error = RuntimeError(f"{kind.__module__}.{kind.__qualname__}: {error}")
                    return

    def _epoch(self, number: int) -> tuple[int, EpochRow]:
        task, checkpoint = self._tasks[number], self._checkpoints[number]
        batch = checkpoint.begin()
        task._claim = lambda generation: (generation, self._attempt)
        row: EpochRow = task(number, batch)
        checkpoint.commit(batch)
        return batch.number, row

    def _report(self, found: list[tuple[int, EpochRow]], began_s: float) -> None:
        shards = [msgspec.json.encode(row).decode() for _, row in found]
        self.lastProgress = {
            "batchId": max(number for number, _ in found),
            "timestamp": datetime.fromtimestamp(began_s, UTC).isoformat(),
            "observedMetrics": {"epochs": {"shards": shards}},
        }


def replace_spark() -> None:
    """Replace what the command needs of Spark."""
    anything: Any = lambda *_, **__: None  # noqa: E731
    anywhere: Any = job
    for name in ("start_jvm", "build_session", "end_session", "require_slots", "warm"):
        setattr(anywhere, name, anything)
    of_driver: Any = driver
    of_driver.start_query = Query


class Process(subprocess.Popen[Any]):
    """A process. `aggregate`, and `up` in the background, are started by this program."""

    def __init__(self, args: Any, *others: Any, **options: Any) -> None:
        if args[1:4] in (["-m", "tallystream_cli.main", "aggregate"], ["-m", "tallystream_cli.main", "up"]):
            args = [args[0], __file__, *args[3:]]
        super().__init__(args, *others, **options)


if __name__ == "__main__":
    replace_spark()
    subprocess.Popen = Process  # type: ignore[misc]
    sys.argv[0] = "tallystream"
    main.main()
