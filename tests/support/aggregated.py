"""A table that loops publish in a cluster in memory, through kills and changes of its layout, and `verify` on it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest import mock

from support.otlp import TOPIC, Fleet, Process
from support.simulation.checkpoints import Batch
from support.simulation.client import SimulatedBroker
from support.simulation.direct import Direct
from support.simulation.system import LEASE, MAX_SHARDS, TOPICS, Programs
from support.tables import table_settings
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.combiner_loop import CombinerLoop
from tallystream_aggregator.stream.loop import ShardLoop
from tallystream_aggregator.stream.positions import LoopId, by_place, by_topic, lowest, visible_row
from tallystream_aggregator.stream.reshard import NoTableError, Resharder
from tallystream_aggregator.stream.restore import LoopSettings
from tallystream_aggregator.table.sum_tags import SumTags
from tallystream_aggregator.verify import job

if TYPE_CHECKING:
    import random

    from tallystream_aggregator.stream.epochs import EpochLoop
    from tallystream_aggregator.verify.check import Outcome

DAY_MS = 86_400_000


class Killed(BaseException):
    """The process was killed."""


class Aggregated(Direct):
    """Applications and the loops of a table of up to three shards, which `chance` runs, kills and changes.

    With `otlp`, there is a topic of OTLP metrics, too. It has one partition: which record of an instance comes first
    would depend on the order of partitions.
    """

    def __init__(
        self,
        chance: random.Random,
        *,
        shards: int = 1,
        removals: bool = True,
        otlp: bool = False,
        kills: float = 0.01,
    ) -> None:
        # A forget record of a metric removes it from forgotten lives of all partitions, so it would depend on the order
        # of partitions whether a life was forgotten before.
        self.rules: dict[str, Any] = {
            "forget_after_ms": 365 * DAY_MS if removals else 50_000,
            "otlp_topics": (TOPIC,) if otlp else (),
        }
        super().__init__(shards=MAX_SHARDS, partitions=2, table=table_settings(**self.rules))
        self.cluster.create(TOPICS.ledger, 1)
        self._fleet = Fleet(chance.randrange(2**32), partitions=1, begin_ns=self.cluster.now_ms * 10**6)
        if otlp:
            self.cluster.create(TOPIC, 1)
            self.broker = SimulatedBroker(self, self.cluster, (TOPICS.metrics, TOPIC).__contains__)  # type: ignore[arg-type]
        self._chance, self._kills = chance, kills
        self.shards, self.tags = shards, SumTags()
        self._programs = Programs(self.cluster.now_ms, shards, removals=removals)
        self._fleet._processes = [Process(f"otlp-{number}") for number in range(3)]
        self._generation = 0
        self.start()
        self.fail = self._kill

    def _kill(self, what: str) -> None:
        if self._chance.random() < self._kills:
            raise Killed(what)

    # The aggregator.

    def start(self, *, keep: bool = True) -> None:
        """Start loops in a new generation. They continue their stores if `keep`."""
        self._generation += 1
        self._batch = 0
        stores = getattr(self, "_stores", {}) if keep else {}
        self._stores = {shard: stores.get(shard, Batch(0)) for shard in range(self.shards + 1)}
        self._loops: dict[int, EpochLoop] = {}
        self._open()

    def _open(self) -> None:
        rows = [visible_row(self.broker, Place(TOPICS.table, shard), shard) for shard in range(self.shards)]
        row = LedgerRow(
            generation=self._generation,
            end=by_topic(lowest(by_place(row.positions) for row in rows if row is not None)) if all(rows) else {},
            shards=self.shards,
            forget_after_ms=self.rules["forget_after_ms"],
            max_table_bytes=self.table.max_table_bytes,
            otlp=list(self.rules["otlp_topics"]),
        )
        self.cluster.append(Place(TOPICS.ledger, 0), None, ledger.encode(row))

    def _loop(self, shard: int) -> EpochLoop:
        if shard not in self._loops:
            loop = LoopId(TOPICS, shard, self.shards)
            if shard == self.shards:
                self._loops[shard] = CombinerLoop(loop, self.broker, self, spacing_s=0.1)
            else:
                settings = LoopSettings(loop, self.tags, table=self.table, spacing_s=0.1, max_records=20)
                self._loops[shard] = ShardLoop(settings, self.broker, self)
        return self._loops[shard]

    def epoch(self, shard: int, seconds: float = 0.3) -> None:
        """Run an epoch of a loop. If it is killed, the next one begins with what is stored."""
        self._batch += 1
        store = self._stores[shard].copy(self._batch)
        try:
            self._loop(shard).run_epoch(store, (self._generation, self._batch), seconds)
        except Killed:
            del self._loops[shard]
            if self._chance.random() < 0.2:
                self._stores[shard] = Batch(0)  # the checkpoint is lost
            return
        self._stores[shard] = store

    @property
    def loops(self) -> range:
        """The numbers of the loops, with the combiner's."""
        return range(self.shards + (self.shards > 1))

    def change(self, shards: int, tags: SumTags) -> None:
        """Give the table another layout. Nothing happens if it has not begun."""
        self._generation += 1
        kills, self._kills = self._kills, 0
        writer, resharder = self.broker.writer(LEASE), Resharder(self.broker, TOPICS, self.table)
        with suppress(NoTableError):
            writer.commit(resharder.run((self._generation, 0), shards=shards, sum_tags=tags).records)
            self.shards, self.tags, self._programs.shards = shards, tags, shards
            self._end_transactions()
        self.start(keep=False)
        self._kills = kills

    # The applications.

    def feed(self, records: int) -> None:  # type: ignore[override]
        """Let the applications publish."""
        for _ in range(records):
            known = len(self._programs.records)
            self._programs.step(self._chance.randrange(2**32))
            for record in self._programs.records[known:]:
                place = Place(TOPICS.metrics, record.partition)
                self.cluster.clock_offset_ms[place] = record.timestamp_ms - self.cluster.now_ms
                self.cluster.append(place, record.key, record.value)
            if self.rules["otlp_topics"]:
                self._feed_otlp()

    def _feed_otlp(self) -> None:
        known, place = len(self._fleet.records), Place(TOPIC, 0)
        self._fleet.step()
        for one in self._fleet.records[known:]:
            self.cluster.clock_offset_ms[place] = one.timestamp_ms - self.cluster.now_ms
            self.cluster.append(place, one.key, one.value)
        if self._chance.random() < 0.1:
            key = self._chance.choice([None, b"app-1", b"app-2"])
            bad = [b"\xff\xff", b"{}", b'{"name":"n","value":1}', b'{"forget":{"metric":"x","shards":9}}']
            self.cluster.append(place, key, self._chance.choice(bad))

    def step(self, *, changes: bool) -> None:
        """Let something happen."""
        self.feed(self._chance.randrange(8))
        self.epoch(self._chance.choice(self.loops), self._chance.choice([0.05, 0.3]))
        if changes and self._chance.random() < 0.1:
            shards = min(MAX_SHARDS, self.shards + self._chance.choice([0, 0, 1]))
            tags = [SumTags(), SumTags(drop=("a",)), SumTags(keep=("b",)), SumTags(keep=())]
            self.change(shards, self._chance.choice(tags))

    def finish(self) -> None:
        """Publish everything."""
        self._kills = 0
        for shard in self.loops:
            self.epoch(shard, 3)

    def has_sums(self) -> bool:
        """Tell whether something is published, of all shards."""
        self.flush()
        agg = self.cluster.partition(Place(TOPICS.agg, 0))
        return bool(agg.committed(0, agg.end))

    # Verify.

    def verify(self) -> Outcome:
        """Verify what is published."""
        self._end_transactions()
        kills, self._kills = self._kills, 0
        with mock.patch.object(job, "KafkaBroker", return_value=self.broker), mock.patch.object(job, "check_login"):
            outcome = job.run(Cluster("memory"))
        self._kills = kills
        return outcome

    def _end_transactions(self) -> None:
        """Let the transactions of killed loops time out."""
        for transaction in self.cluster.open_transactions():
            self.cluster.expire(transaction.transactional_id)
        self.flush()

    def tamper(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Append a record that no loop has published."""
        self.cluster.append(Place(topic, 0), key, value)
