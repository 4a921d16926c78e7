"""Processes that run the loop on a real broker, programs that publish, disasters, and a reader that judges."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

from confluent_kafka.admin import AdminClient, NewTopic

from support.fleet import NAME, Fleet, Shares
from support.kafka import end_offsets
from support.stream_process import REPLACED, FileCheckpoint, Task
from support.stream_reader import Reader
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.process import spawn

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tallystream_cli.servers.broker import KafkaBroker

TESTS = Path(__file__).parent.parent
PATIENCE = float(os.environ.get("TALLYSTREAM_FAULTS_PATIENCE", "5"))
LIMIT_S = 60.0 * PATIENCE
"""The longest wait for anything; on an idle machine nothing but a pause takes more than a tenth of it."""

PARTITIONS = 2


class Processes:
    """The processes of one table: one for each shard, and of several shards one for the combiner.

    `start` begins a generation, which takes the lease. `current` are the processes of the newest one by task.
    """

    def __init__(self, broker: KafkaBroker, topics: Topics, folder: Path, shards: int, *, epoch_s: float) -> None:
        self._broker, self._topics, self._folder, self._epoch_s = broker, topics, folder, epoch_s
        self.shards = shards
        self.generation = 0
        self.current: dict[int, subprocess.Popen[bytes]] = {}
        self._all: list[subprocess.Popen[bytes]] = []
        self.log = folder / "processes.log"

    def start(self) -> None:
        """Start a process for each task, as a driver that takes the lease."""
        self.generation += 1
        written = self._folder / "lease.new"
        written.write_text(str(self.generation), encoding="utf-8")
        written.rename(self._folder / "lease")
        for task in range(self.shards + (self.shards > 1)):
            self.current[task] = self._spawn(task)

    def _spawn(self, task: int) -> subprocess.Popen[bytes]:
        given = Task(
            self._broker.bootstrap_servers,
            self._topics.prefix,
            task,
            self.shards,
            self.generation,
            str(self.checkpoint(task)),
            str(self._folder / "lease"),
            self._epoch_s,
            spacing_s=0.02,
        )
        command = [sys.executable, "-m", "support.stream_process", json.dumps(asdict(given))]
        self._all.append(spawn(command, self.log, cwd=TESTS))
        return self._all[-1]

    def checkpoint(self, task: int) -> Path:
        """Return the folder of the checkpoint of a task."""
        return self._folder / f"checkpoint-{task}"

    def kill(self) -> None:
        """Kill all tasks with SIGKILL."""
        for process in self.current.values():
            process.kill()
            process.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all tasks."""
        for process in self.current.values():
            process.send_signal(number)

    def lose_checkpoint(self, task: int = 0) -> None:
        """Remove the checkpoint of a task, which must not run."""
        shutil.rmtree(self.checkpoint(task))

    def truncate_checkpoint(self, chance: random.Random, task: int = 0) -> None:
        """Truncate a random file of the newest state of a task, which must not run."""
        newest = FileCheckpoint(self.checkpoint(task)).newest()
        assert newest is not None
        path = chance.choice(sorted(path for path in newest.iterdir() if path.stat().st_size))
        os.truncate(path, chance.randrange(path.stat().st_size))

    def stop(self) -> None:
        """Stop all tasks, which must still run, with SIGTERM.

        Raises:
            AssertionError: one ended with an error, or did not end.
        """
        self.send(signal.SIGTERM)
        codes = [process.wait(LIMIT_S) for process in self.current.values()]
        assert codes == [0] * len(codes), codes

    def clean_up(self) -> None:
        """Kill what still runs."""
        for process in self._all:
            process.kill()
            process.wait()


class System:
    """A table with programs that publish and a reader that follows the outputs, on `broker`.

    Use it with `with`: at the end of the block the programs stop, all is read, and the reader judges.
    """

    def __init__(
        self, broker: KafkaBroker, prefix: str, folder: Path, *, shards: int = 1, seed: int = 0, epoch_s: float = 1.0
    ) -> None:
        self.broker, self.topics = broker, Topics(prefix)
        self.chance = random.Random(seed)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        create_topics(admin, self.topics, partitions=PARTITIONS, shards=shards)
        if shards > 1:
            for done in admin.create_topics([NewTopic(self.topics.shards, shards + 1, 1)]).values():
                done.result()
        self.processes = Processes(broker, self.topics, folder, shards, epoch_s=epoch_s)
        self.reader = Reader(broker.bootstrap_servers, self.topics, shards)
        # Without tombstones no count may fall.
        self._fleet = Fleet(broker.bootstrap_servers, self.topics.metrics, seed, shares=Shares(0.02, tombstone=0))
        self.recovery_s: dict[str, list[float]] = {}

    @contextmanager
    def publishing(self) -> Iterator[Self]:
        """Run the table, publish, and follow the outputs. At the end of the block all is read, judged and stopped."""
        processes = self.processes
        self.reader.start()
        try:
            processes.start()
            with self._fleet.publishing():
                self._wait_progress("start", time.monotonic())
                yield self
            self._settle()
            processes.stop()
            self.reader.stop(LIMIT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{processes.log.read_text(encoding='utf-8')[-20_000:]}") from error
        finally:
            processes.clean_up()
        self.reader.judge()
        journal = self._fleet.journal
        assert self.reader.counts(self._fleet.app, NAME, "part") == journal.totals()
        assert self.reader.dead == dict.fromkeys(journal.malformed, 1)

    def _settle(self) -> None:
        ends = end_offsets(self.broker.bootstrap_servers, self.topics.metrics)
        shards, reader = self.processes.shards, self.reader

        def is_all_read() -> bool:
            is_published = reader.published == dict.fromkeys(range(shards), ends) and reader.has_all_rows(ends)
            return bool(reader.violations) or is_published

        wait_until(is_all_read, LIMIT_S, "everything is published")

    def _wait_progress(self, what: str, since_s: float) -> None:
        """Wait until each shard of the newest generation has published records, and note the seconds since then."""
        before, generation = self.reader.published, self.processes.generation

        def goes_on() -> bool:
            newest = {task: steps[-1] if steps else None for task, steps in self.reader.steps.items()}
            if any(step is None or step.claim[0] != generation for step in newest.values()):
                return bool(self.reader.violations)
            now = self.reader.published
            return all(sum(now.get(s, {}).values()) > sum(before.get(s, {}).values()) for s in self.shards)

        wait_until(goes_on, LIMIT_S, f"the table goes on after {what}", poll=0.01)
        self.recovery_s.setdefault(what, []).append(time.monotonic() - since_s)

    @property
    def shards(self) -> range:
        """The numbers of the shards."""
        return range(self.processes.shards)

    def pause(self, seconds: float) -> None:
        """Let everything run."""
        threading.Event().wait(seconds)

    # Disasters. After each of them the table goes on.

    def kill(self, after: str = "a kill") -> None:
        """Kill all processes, and start them again."""
        since_s = time.monotonic()
        self.processes.kill()
        self.processes.start()
        self._wait_progress(after, since_s)

    def kill_task(self, task: int) -> None:
        """Kill the process of one task. A new driver starts all of them."""
        since_s = time.monotonic()
        self.processes.current[task].kill()
        self.take_over(f"a kill of task {task}", since_s)

    def lose_checkpoint(self) -> None:
        """Kill all processes, and remove the checkpoint of a shard."""
        self.processes.kill()
        self.processes.lose_checkpoint(self.chance.choice(self.shards))
        self.kill("a lost checkpoint")

    def truncate_checkpoint(self) -> None:
        """Kill all processes, and truncate a file of the newest state of a shard."""
        self.processes.kill()
        self.processes.truncate_checkpoint(self.chance, self.chance.choice(self.shards))
        self.kill("a truncated checkpoint")

    def freeze(self, seconds: float) -> None:
        """Stop all processes for a time. They go on by themselves."""
        self.processes.send(signal.SIGSTOP)
        self.pause(seconds)
        self.processes.send(signal.SIGCONT)
        self._wait_progress(f"a pause of {'more' if seconds > 30 else 'less'} than 30 s", time.monotonic())

    def take_over(self, what: str = "a takeover", since_s: float | None = None) -> None:
        """Start a new driver beside the one that runs, whose processes end by themselves."""
        replaced = list(self.processes.current.values())
        since_s = since_s or time.monotonic()
        self.processes.start()
        self._wait_progress(what, since_s)
        self._wait_replaced(replaced)

    def take_over_frozen(self) -> None:
        """Stop all processes, take over, and let the old ones go on: they publish nothing, and end by themselves."""
        replaced, since_s = list(self.processes.current.values()), time.monotonic()
        self.processes.send(signal.SIGSTOP)
        self.processes.start()
        self._wait_progress("a takeover from a frozen driver", since_s)
        for process in replaced:
            process.send_signal(signal.SIGCONT)
        self._wait_replaced(replaced)

    def kill_broker(self, seconds: float) -> None:
        """Kill the broker, and start it again after a time. The processes go on by themselves."""
        self.broker.kill()
        self.pause(seconds)
        self.broker.start()
        self._wait_progress("an outage", time.monotonic())

    def _wait_replaced(self, processes: list[subprocess.Popen[bytes]]) -> None:
        codes = {process.wait(LIMIT_S) for process in processes}
        assert codes <= {REPLACED, -signal.SIGKILL}, codes
