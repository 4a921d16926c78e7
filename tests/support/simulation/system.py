"""A simulated system: applications that publish, aggregators that run the loop on Spark's checkpoint, and disasters.

A driver takes a generation, which rises, and has the lease until the next one takes it. It begins a batch, runs the
loop's epoch in it, and commits it. It starts a fenced task again only while it has the lease.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from support.replayed import TopicRecord
from support.runs import FORGET_AFTER_MS
from support.schedules import Play
from support.simulation.broker import Action, SimulatedCluster, Transaction
from support.simulation.checkpoints import BatchTakenError, Checkpoint
from support.simulation.client import SimulatedBroker
from support.simulation.processes import Process
from support.simulation.scheduler import Choices, Faults, Scheduler
from support.tables import table_settings
from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.stream.broker import BrokerError, FencedError, Place
from tallystream_aggregator.stream.combiner_loop import CombinerLoop
from tallystream_aggregator.stream.epochs import EpochLoop
from tallystream_aggregator.stream.loop import ShardLoop
from tallystream_aggregator.stream.positions import Layout, LoopId, visible_row
from tallystream_aggregator.stream.reshard import Resharder
from tallystream_aggregator.stream.restore import LoopSettings
from tallystream_aggregator.table.sum_tags import SumTags
from tallystream_aggregator.times import DAY_MS

SHORT_FORM_EVERY_MS = 5_000
TOPICS = Topics()
LEASE = "lease"
"""The transactional ID of the lease."""

MAX_SHARDS = 3
Found = TypeVar("Found")

FAULTS = Faults(kill_before=10, kill_after=15, lose_answer=10, fail=15, late=15, freeze=10)


class Disasters(NamedTuple):
    """What may happen beside faults of requests; each number is how likely it is in comparison with a fed record."""

    takeover: int = 1
    lose_checkpoint: int = 1
    old_checkpoint: int = 1
    damage_checkpoint: int = 1
    compact: int = 1
    add_partition: int = 1
    delete_records: int = 1
    reshard: int = 0
    expire: int = 1
    """The coordinator aborts a transaction that is open for too long, and so fences its writer."""
    lose_markers: int = 0
    """The broker is killed, and loses all markers of a transaction that is ending. Its next one, or writer, waits."""
    removals: bool = True
    """Whether tombstones and forget records are published, which lower counts."""


class Programs(Play):
    """The applications. `records` are what the schedules' programs publish."""

    def __init__(self, now_ms: int, shards: int, *, removals: bool) -> None:
        super().__init__(shards)
        self.now, self._removals = now_ms, removals

    def _remove_lives(self, chance: random.Random, instance: str) -> None:
        if self._removals:
            super()._remove_lives(chance, instance)


class System:
    """The system. `scheduler` runs it; `errors` are the errors that ended an aggregator for good."""

    def __init__(
        self,
        choices: Choices,
        disasters: Disasters = Disasters(),  # noqa: B008 (a tuple)
        *,
        faults: Faults = FAULTS,
        loop: type[ShardLoop] = ShardLoop,
        broker: type[SimulatedBroker] = SimulatedBroker,
        shards: int = 1,
    ) -> None:
        self.cluster, self.layout = SimulatedCluster(), Layout(shards)
        self.inputs = {TOPICS.metrics}
        for name in (TOPICS.agg, TOPICS.events, TOPICS.dead):
            self.cluster.create(name, 1)
        self.cluster.create(TOPICS.table, MAX_SHARDS)
        self.cluster.create(TOPICS.metrics, 2)
        self.cluster.create(TOPICS.shards, MAX_SHARDS + 1)
        self.scheduler = Scheduler(
            choices,
            self.cluster,
            faults=faults,
            expected=(TallystreamError, BatchTakenError),
            weight=200,
        )
        self.scheduler.actions = self._actions
        self.checkpoints = {n: [Checkpoint() for _ in range(n)] for n in range(1, MAX_SHARDS + 1)}
        self.generation = 0
        self.records: list[TopicRecord] = []
        # A forget record of a metric removes it from forgotten lives of all partitions, so it would depend on the order
        # of partitions whether a life was forgotten before.
        forget_after_ms = 365 * DAY_MS if disasters.removals else FORGET_AFTER_MS
        self.rules: dict[str, Any] = {"short_form_every_ms": SHORT_FORM_EVERY_MS, "forget_after_ms": forget_after_ms}
        self.table = table_settings(**self.rules)
        self.feeding = True
        self.disasters = disasters
        self.errors: list[Exception] = []
        self._loop, self._broker = loop, broker
        self._programs = Programs(self.cluster.now_ms, shards, removals=disasters.removals)
        self._tasks: list[Process] = []

    # The aggregator.

    def start(self) -> None:
        """Start an aggregator, which takes the lease: a task for each shard, and one for the combiner."""
        self.generation += 1
        run = partial(self._drive, generation=self.generation)
        self._tasks.append(self.scheduler.spawn(f"driver {self.generation}", run))

    def _drive(self, process: Process, generation: int) -> None:
        """Read how many shards the table has, and start their tasks."""
        layout = self._retry(process, generation, lambda: self._layout(process))
        if layout is not None:
            process.call("start tasks", partial(self._start_tasks, layout, generation), may_fail=False)

    def _retry(self, process: Process, generation: int, call: Callable[[], Found]) -> Found | None:
        """Call until it succeeds, or the lease is lost."""
        while process.call("lease", lambda: self.generation == generation, may_fail=False):
            try:
                return call()
            except BrokerError:
                process.sleep(0.1)
            except FencedError:
                return None
        return None

    def _layout(self, process: Process) -> Layout:
        self._access(process).writer(LEASE).close()
        row = visible_row(self._access(process), LoopId(TOPICS).rows, 0)
        return self.layout if row is None else row.layout

    def _start_tasks(self, layout: Layout, generation: int) -> None:
        if generation != self.generation:
            return
        self.layout = layout
        for shard in range(layout.shards):
            self._spawn(f"shard {shard}", self._loop_of(shard), self.checkpoints[layout.shards][shard])
        if layout.shards > 1:
            self._spawn("combiner", self._combiner, Checkpoint())

    def reshard(self) -> None:
        """Change the number of shards, in a process that takes the lease."""
        self.generation += 1
        shards = self.scheduler.choose(MAX_SHARDS - self.layout.shards + 1, "shards") + self.layout.shards
        new = Layout(shards, self.new_tags())
        run = partial(self._reshard, new=new, generation=self.generation)
        self._tasks.append(self.scheduler.spawn(f"reshard {self.generation}", run))

    def new_tags(self) -> SumTags:
        """Return the tags that the sums have after a change of the layout."""
        return self.layout.sum_tags

    def _reshard(self, process: Process, new: Layout, generation: int) -> None:
        def change() -> None:
            writer = self._access(process).writer(LEASE)
            if process.call("lease", lambda: self.generation != generation, may_fail=False):
                raise FencedError("somebody has a higher generation")
            resharder = Resharder(self._access(process), TOPICS, self.table)
            writer.commit(resharder.run((generation, 0), shards=new.shards, sum_tags=new.sum_tags).records)

        self._retry(process, generation, change)

    def _spawn(self, name: str, loop: Callable[[Process], EpochLoop], checkpoint: Checkpoint) -> None:
        run = partial(self._run_task, loop=loop, checkpoint=checkpoint, generation=self.generation)
        self._tasks.append(self.scheduler.spawn(f"{name} of {self.generation}", run))

    def _loop_of(self, shard: int) -> Callable[[Process], EpochLoop]:
        loop = LoopId(TOPICS, shard, self.layout.shards)
        settings = LoopSettings(loop, self.layout.sum_tags, table=self.table, spacing_s=0.01, max_records=20)
        return lambda process: self._loop(settings, self._access(process), process)

    def _combiner(self, process: Process) -> EpochLoop:
        loop = LoopId(TOPICS, self.layout.shards, self.layout.shards)
        return CombinerLoop(loop, self._access(process), process, spacing_s=0.01)

    def _access(self, process: Process) -> SimulatedBroker:
        return self._broker(process, self.cluster, self.inputs.__contains__)

    def _run_task(
        self, process: Process, loop: Callable[[Process], EpochLoop], checkpoint: Checkpoint, generation: int
    ) -> None:
        attempt, one = 0, loop(process)
        while process.call("lease", lambda: self.generation == generation, may_fail=False):
            batch = process.call("begin a batch", checkpoint.begin, may_fail=False)
            try:
                one.run_epoch(batch, (generation, attempt), process.choose(3, "epoch") + 0.2)
            except FencedError:
                attempt, one = attempt + 1, loop(process)
                process.sleep(0.5)
                continue
            # Spark commits while the loop goes on, sooner or later.
            self._go_on(process, one)
            process.call("commit the batch", partial(checkpoint.commit, batch), may_fail=False)
            self._go_on(process, one)

    def _go_on(self, process: Process, loop: EpochLoop) -> None:
        """Let the loop take steps between two epochs, for a time that may be zero."""
        until_s = process.monotonic() + process.choose(3, "between epochs") / 10
        loop.run_between(lambda: process.monotonic() >= until_s)

    @property
    def is_running(self) -> bool:
        """Whether all tasks of an aggregator are running, or it is starting, or the shards are being changed."""
        running = [process.name for process in self._tasks if not process.ended]
        is_busy = any(name.startswith(("driver", "reshard")) for name in running)
        return is_busy or len(running) >= self.layout.shards + (self.layout.shards > 1)

    # The world.

    def _actions(self) -> Iterator[Action]:
        d = self.disasters
        if self.feeding:
            yield Action(50, "feed", self._feed)
            yield Action(d.takeover, "take over", self.start)
            yield Action(d.lose_checkpoint, "lose a checkpoint", self._lose)
            yield Action(d.old_checkpoint, "put back a checkpoint", self._put_back)
            yield Action(d.damage_checkpoint, "damage the checkpoint", self._damage)
            yield Action(d.compact, "compact", self._compact)
            yield Action(d.add_partition, "add a partition", self._add_partition)
            yield Action(d.delete_records, "delete records", self._delete_records)
            yield Action(d.reshard, "reshard", self.reshard)
            for transaction in self.cluster.open_transactions():
                expire = partial(self.cluster.expire, transaction.transactional_id)
                yield Action(d.expire, f"expire {transaction.transactional_id}", expire)
            waiting = {process.request.what for process in self.scheduler.processes if process.request is not None}
            for transaction in self.cluster.ending():
                waits = f"begin {transaction.transactional_id}", f"open {transaction.transactional_id}"
                if transaction.unmarked == transaction.places and not waiting.isdisjoint(waits):
                    yield Action(d.lose_markers, "lose markers", partial(self._lose_markers, transaction))
        if not self.is_running:
            yield Action(100, "start", self._restart)

    def _restart(self) -> None:
        self.errors += [process.error for process in self._tasks if process.error is not None]
        self._tasks = [process for process in self._tasks if not process.ended]
        self.start()

    def _feed(self) -> None:
        programs = self._programs
        known = len(programs.records)
        programs.step(self.scheduler.choose(2**32, "record"))
        for record in programs.records[known:]:
            place = Place(TOPICS.metrics, record.partition)
            self.cluster.clock_offset_ms[place] = record.timestamp_ms - self.cluster.now_ms
            offset = self.cluster.append(place, record.key, record.value)
            assert offset == record.offset
            self.records.append(record)

    def _checkpoint(self) -> Checkpoint:
        shards = self.layout.shards
        return self.checkpoints[shards][self.scheduler.choose(shards, "shard")]

    def _lose(self) -> None:
        self._checkpoint().lose()

    def _put_back(self) -> None:
        checkpoint = self._checkpoint()
        checkpoint.put_back(self.scheduler.choose(len(checkpoint.batches) + 1, "batches"))

    def _lose_markers(self, transaction: Transaction) -> None:
        self.cluster.now_ms += 3_000  # a broker starts again
        self.cluster.lose_markers(transaction, transaction.places)

    def _damage(self) -> None:
        self._checkpoint().damage(self.scheduler.choose(10, "entry"), self.scheduler.choose(200, "size"))

    def _compact(self) -> None:
        end = self.scheduler.choose(10_000, "end of compaction")
        # Kafka keeps a tombstone for a day after it was compacted. No task takes so long to read what came before it.
        idle = all(process.ended for process in self._tasks)
        for place in self.cluster.places(TOPICS.agg, TOPICS.table, TOPICS.shards):
            self.cluster.partition(place).compact(end, markers=True, tombstones=idle)

    def _delete_records(self) -> None:
        """Delete records of `metrics` that the newest rows include, as retention does."""
        cuts = [self._newest(shard, b'["shard",%d]' % shard) for shard in range(self._of())]
        for place in cuts[0]:
            position = min(cut.get(place, 0) for cut in cuts)
            self.cluster.partition(place).delete_before(self.scheduler.choose(position + 1, "first offset"))

    def _add_partition(self) -> None:
        self.cluster.create(TOPICS.metrics, len(self.cluster.topics[TOPICS.metrics].partitions) + 1)

    def end(self) -> bool:
        """Stop feeding, and tell whether the aggregator reads everything, as it must."""
        self.feeding = False
        ends = {place: self.cluster.partition(place).end for place in self.cluster.places(*self.inputs)}

        def is_published() -> bool:
            own = [self.cluster.partition(p) for p in self.cluster.places(TOPICS.agg, TOPICS.table, TOPICS.shards)]
            is_visible = not self.cluster.ending() and all(one.stable == one.end for one in own)
            return is_visible and all(positions == ends for positions in self.published().values())

        return self.scheduler.settle(20_000 * MAX_SHARDS, is_published)

    def published(self) -> dict[int, dict[Place, int]]:
        """Return the positions of each shard that the sums include, by the newest committed positions row."""
        shards = self._of()
        if shards == 1:
            return {0: self._newest(0, b'["positions",0]')}
        partition = self.cluster.partition(Place(TOPICS.shards, shards))
        rows = [entry.value for entry in partition.committed(partition.start, partition.end) if entry.value]
        found = json.loads(rows[-1])["shards"] if rows else {}
        return {shard: by_place(found.get(str(shard), {})) for shard in range(shards)}

    def _of(self) -> int:
        """Return the number of shards, by the newest committed positions row."""
        partition = self.cluster.partition(Place(TOPICS.table, 0))
        rows = [e for e in partition.committed(partition.start, partition.end) if e.key == b'["positions",0]']
        return int(json.loads(rows[-1].value or b"{}").get("of", 1)) if rows else self.layout.shards

    def _newest(self, shard: int, key: bytes) -> dict[Place, int]:
        partition = self.cluster.partition(Place(TOPICS.table, shard))
        for entry in reversed(partition.committed(partition.start, partition.end)):
            if entry.key == key and entry.value is not None:
                return positions_in(entry.value)
        return {}


def by_place(positions: dict[str, dict[str, int]]) -> dict[Place, int]:
    """Return positions by partition. They are given as topic → partition → position."""
    return {Place(topic, int(p)): at for topic, found in positions.items() for p, at in found.items()}


def positions_in(value: bytes) -> dict[Place, int]:
    """Return the positions in a positions row, or in the record of a shard, which has the last offsets."""
    row = json.loads(value)
    if "positions" in row:
        return by_place(row["positions"])
    names = {name.rpartition(":"): offset + 1 for name, offset in row["offsets"].items()}
    return {Place(topic, int(p)): position for (topic, _, p), position in names.items()}
