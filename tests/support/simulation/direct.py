"""A loop on a simulated cluster without a scheduler: a test says what goes wrong, and when.

Each request happens at once, and markers are written before the next one. Time passes only in reads that find nothing,
and while the loop sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from support.simulation.broker import SimulatedCluster
from support.simulation.checkpoints import Batch
from support.simulation.client import SimulatedBroker
from support.simulation.system import TOPICS
from tallystream_aggregator.stream.broker import Place, Positions
from tallystream_aggregator.stream.combiner_loop import CombinerLoop
from tallystream_aggregator.stream.loop import ShardLoop
from tallystream_aggregator.stream.positions import LoopId, by_place, newest_in
from tallystream_aggregator.stream.restore import LoopSettings
from tallystream_aggregator.table import TableSettings

TABLE = TableSettings(short_form_every_ms=5_000)
METRICS = Place(TOPICS.metrics, 0)
ROWS = Place(TOPICS.table, 0)


class Direct:
    """The process, the timer and the stop of loops. `fail` is called with the name of each request and may raise."""

    def __init__(self, *, shards: int = 1, partitions: int = 1, table: TableSettings = TABLE) -> None:
        self.cluster, self.shards, self.table = SimulatedCluster(), shards, table
        for name in (TOPICS.agg, TOPICS.events, TOPICS.dead):
            self.cluster.create(name, 1)
        self.cluster.create(TOPICS.table, shards)
        self.cluster.create(TOPICS.metrics, partitions)
        self.cluster.create(TOPICS.shards, shards + 1)
        self.fail: Callable[[str], object] = lambda _: None
        self.lost: Collection[Place] = ()
        """The partitions in which the cluster loses the markers of transactions that end now."""
        self.stopped = False
        self.requests: list[str] = []
        self.store = Batch(0)
        self.broker: Any = SimulatedBroker(self, self.cluster, TOPICS.metrics.__eq__)  # type: ignore[arg-type]

    # The process.

    def call(self, what: str, effect: Callable[[], Any], **_: Any) -> Any:
        self.flush()
        self.requests.append(what)
        self.fail(what)
        return effect()

    def choose(self, n: int, what: str) -> int:  # noqa: ARG002 (the simulation's process has it)
        return 0

    def pass_time(self, seconds: float) -> None:
        self.cluster.now_ms += round(seconds * 1000)

    # The timer.

    def monotonic(self) -> float:
        return self.cluster.now_ms / 1000

    sleep = pass_time

    # The test.

    def after(self, seconds: float) -> Callable[[], bool]:
        """Return what tells whether this time has passed from now on."""
        until_s = self.monotonic() + seconds
        return lambda: self.monotonic() >= until_s

    def flush(self) -> None:
        """Write the markers of transactions that have ended, or lose them."""
        for transaction in self.cluster.transactions[-1:] if self.lost else ():
            self.cluster.lose_markers(transaction, self.lost)
        for action in list(self.cluster.actions()):
            action.run()

    def loop(self, shard: int = 0, **settings: Any) -> ShardLoop:
        of = LoopSettings(LoopId(TOPICS, shard, self.shards), table=self.table, **{"spacing_s": 0.1, **settings})
        return ShardLoop(of, self.broker, self, lambda: self.stopped)

    def combiner(self) -> CombinerLoop:
        loop = LoopId(TOPICS, self.shards, self.shards)
        return CombinerLoop(loop, self.broker, self, lambda: self.stopped, spacing_s=0.1)

    def feed(self, *values: int, place: Place = METRICS, key: bytes = b"app-1", name: str = "n") -> None:
        """Append values of a counter of the short form."""
        for value in values:
            self.cluster.append(place, key, b'{"name":"%s","value":%d}' % (name.encode(), value))

    def published(self, place: Place = ROWS, shard: int = 0) -> Positions | None:
        """Return the published positions of a shard. Require that steps rise by one, and that no claim falls."""
        self.flush()
        partition = self.cluster.partition(place)
        entries = [entry[:4] for entry in partition.committed(partition.start, partition.end)]
        rows = [
            row for row in (newest_in([entry], b'["positions",%d]' % shard) for entry in entries) if row is not None
        ]
        if rows and rows[0].step == 1:  # none was deleted, or compacted
            assert [row.step for row in rows] == list(range(1, len(rows) + 1))
            assert [row.claim for row in rows] == sorted(row.claim for row in rows)
        return by_place(rows[-1].positions) if rows else None

    def values(self, topic: str = TOPICS.agg) -> list[bytes]:
        """Return the committed values of the first partition of a topic, without the numbers of instances."""
        return [value or b"" for key, value in self.records(topic) if b'"instances",' not in (key or b"")]

    def records(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Return the committed keys and values of the first partition of a topic."""
        self.flush()
        partition = self.cluster.partition(Place(topic, 0))
        return [(entry.key, entry.value) for entry in partition.committed(partition.start, partition.end)]
