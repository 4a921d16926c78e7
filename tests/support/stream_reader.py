"""A reader of what the loop publishes: it follows the topics all the time, and judges what it has seen.

It shares no code with the loop, only the formats of the topics. While it reads, no count may fall, and no position,
step or claim of a task may go back. At the end, `judge` compares the sums, dead letters and events of several steps
with the replay of verify, and restores tables from rows.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from support.kafka import Key, TopicRecord, end_offsets, read_topic
from support.replayed import Replayed, fields_of, replay
from support.wait import wait_until
from tallystream_aggregator.table import Table
from tallystream_aggregator.table.combiners import CombinerGroup
from tallystream_aggregator.table.restore import LatestRows, restore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tallystream_aggregator import sums
    from tallystream_aggregator.kafka.topics import Topics

Fields = dict[str, Any]

Positions = dict[int, int]
"""partition of `metrics` → the next offset"""


class Step(NamedTuple):
    """A transaction: its number and claim, and the positions of each shard.

    `rows` is how many records of `metrics-table` were read up to its end, and `is_cut` whether it has rows.
    """

    number: int
    claim: tuple[int, int]
    positions: dict[int, Positions]
    rows: int = 0
    is_cut: bool = False


class Reader:
    """Follows the outputs of a table of `shards` shards in a thread, between `start` and `stop`.

    `steps` has the steps of each task; that of the combiner has the number after the last shard's. `violations` are
    what must never be seen.
    """

    def __init__(self, bootstrap_servers: str, topics: Topics, shards: int) -> None:
        self._servers, self._topics, self._shards = bootstrap_servers, topics, shards
        self._stopped = threading.Event()
        self._read: dict[tuple[str, int], int] = {}
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._sums: list[tuple[int, Key, Fields]] = []  # with their offsets on metrics-agg
        self._newest: dict[Key, dict[str, Any]] = {}
        self._rows: list[tuple[int, bytes, bytes | None]] = []
        self._is_cut: dict[int, bool] = {}
        self._dead: list[tuple[int, int]] = []
        self._events: list[dict[str, Any]] = []
        self.steps: dict[int, list[Step]] = {task: [] for task in range(shards + (shards > 1))}
        self.violations: list[str] = []

    def start(self) -> None:
        """Begin to follow the topics from their begin."""
        self._thread.start()

    def stop(self, limit_s: float) -> None:
        """Read to the end, and no more. Call it when nothing is written any more.

        Raises:
            AssertionError: the end was not reached in time.
        """
        topics = {topic for topic, _ in self._read}
        ends = {(topic, p): end for topic in topics for p, end in end_offsets(self._servers, topic).items()}
        followed = {partition: ends[partition] for partition in self._read}
        wait_until(lambda: self._read == followed or self.violations, limit_s, "the outputs are read")
        self._stopped.set()
        self._thread.join()

    @property
    def published(self) -> dict[int, Positions]:
        """The positions of each shard that the newest sums include."""
        steps = self.steps[self._shards if self._shards > 1 else 0]
        return steps[-1].positions if steps else {}

    def has_all_rows(self, ends: Positions) -> bool:
        """Tell whether the newest rows of every shard are those at these positions."""
        newest = [next((s for s in reversed(self.steps[shard]) if s.is_cut), None) for shard in range(self._shards)]
        return all(step is not None and step.positions[shard] == ends for shard, step in enumerate(newest))

    def _follow(self) -> None:
        options: dict[str, Any] = {
            "bootstrap.servers": self._servers,
            "group.id": "tests-follow",
            "enable.auto.commit": False,
        }
        options |= {"isolation.level": "read_committed", "fetch.wait.max.ms": 50, "enable.partition.eof": True}
        consumer = Consumer({**options, "log_level": 0})
        topics, parts = self._topics, [(name, 0) for name in (self._topics.agg, self._topics.dead, self._topics.events)]
        parts += [(topics.table, shard) for shard in range(self._shards)]
        parts += [(topics.shards, self._shards)] if self._shards > 1 else []
        self._read = dict.fromkeys(parts, 0)
        consumer.assign([TopicPartition(name, partition, 0) for name, partition in parts])
        try:
            while not self._stopped.is_set():
                for message in consumer.consume(1_000, 0.02):
                    topic, partition, error = message.topic() or "", message.partition() or 0, message.error()
                    if error is None:
                        self._take(topic, partition, message.offset() or 0, message.key(), message.value())
                    elif error.code() == KafkaError._PARTITION_EOF:
                        self._read[topic, partition] = message.offset() or 0
                    # Any other error is an outage, which ends.
        except Exception as error:  # noqa: BLE001 (`judge` shows it)
            self.violations.append(f"the reader ended: {error!r}")
        finally:
            consumer.close()

    def _take(self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        topics, key = self._topics, key or b""
        if key.startswith(b'["positions",'):
            self._step(json.loads(value or b""))
        elif topic == topics.table:
            self._rows.append((partition, key, value))
            self._is_cut[partition] = True
        elif topic == topics.agg:
            self._sum(offset, key, value or b"")
        elif topic == topics.dead:
            letter = json.loads(value or b"")
            self._dead.append((letter["partition"], letter["offset"]))
        elif topic == topics.events:
            self._events.append(json.loads(value or b""))

    def _step(self, row: dict[str, Any]) -> None:
        task, metrics = int(row["shard"]), self._topics.metrics
        of_shards = row.get("shards") or {str(task): row["positions"]}
        positions = {
            int(shard): {int(p): at for p, at in found.get(metrics, {}).items()} for shard, found in of_shards.items()
        }
        number, (generation, attempt) = int(row["step"]), row["claim"]
        step = Step(
            number,
            (generation, attempt),
            positions,
            len(self._rows),
            self._is_cut.pop(task, False),
        )
        known = self.steps[task]
        if known:
            last = known[-1]
            if step.number <= last.number or step.claim < last.claim:
                self.violations.append(f"task {task}: a step of an earlier writer: {step} after {last}")
            for shard, before in last.positions.items():
                now = step.positions.get(shard, {})
                if any(now.get(p, -1) < at for p, at in before.items()):
                    self.violations.append(f"task {task}: positions went back: {step} after {last}")
        known.append(step)

    def _sum(self, offset: int, key: bytes, value: bytes) -> None:
        app, kind, name, tags = json.loads(key)
        metric, row = (app, name, kind, tuple(map(tuple, tags))), json.loads(value)
        known = self._newest.get(metric)
        if known is not None:
            for topic, partitions in known["offsets"].items():
                now = row["offsets"].get(topic, {})
                if any(now.get(partition, -1) < at for partition, at in partitions.items()):
                    self.violations.append(f"{metric}: offsets went back: {row['offsets']} after {known['offsets']}")
            if row.get("count", 0) < known.get("count", 0):
                self.violations.append(f"{metric}: the count fell from {known['count']} to {row.get('count')}")
        self._newest[metric] = row
        self._sums.append((offset, metric, fields_of(value)))

    def counts(self, app: str, name: str, tag: str) -> dict[str, int | None]:
        """Return the newest counts of a metric by the value of one tag."""
        return {
            dict(tags)[tag]: row.get("count")
            for (row_app, row_name, _, tags), row in self._newest.items()
            if (row_app, row_name) == (app, name)
        }

    @property
    def dead(self) -> Counter[tuple[int, int]]:
        """The number of dead letters of each (partition, offset)."""
        return Counter(self._dead)

    def judge(self) -> None:
        """Compare the end, and about ten steps before it, with the replay. Call it after `stop`.

        Raises:
            AssertionError: a property does not hold.
        """
        assert not self.violations, self.violations[:5]
        records = read_topic(self._servers, self._topics.metrics)
        steps = [step for step in self.steps[self._shards if self._shards > 1 else 0] if self._is_one_moment(step)]
        published: dict[Key, Fields] = {}
        transactions = self._transactions()
        for step in _some(steps, 10):
            self._find(published, transactions, _replay(records, step.positions[0]), f"the sums at {step}")
        wanted = _replay(records, steps[-1].positions[0])
        assert self.dead == wanted.dead
        names = ("kind", "app", "instance", "life", "ts")
        events = [event for event in self._events if event["kind"] != "overflow"]
        assert Counter((*(e[name] for name in names), e.get("detail", "")) for e in events) == wanted.events
        if self._shards > 1:
            self._compare_rows({shard: len(self._rows) for shard in range(self._shards)}, wanted, "the last rows")
        else:
            cuts = [step for step in self.steps[0] if step.is_cut]
            for step in _some(cuts, 10):
                at = _replay(records, step.positions[0])
                self._compare_rows({0: step.rows}, at, f"the rows at {step}")

    def _is_one_moment(self, step: Step) -> bool:
        """Tell whether all shards are at the same positions."""
        positions = [step.positions.get(shard) for shard in range(self._shards)]
        return positions[0] is not None and all(one == positions[0] for one in positions)

    def _transactions(self) -> Iterator[dict[Key, Fields]]:
        """Yield the sums of each transaction. The marker at its end takes an offset."""
        transaction: dict[Key, Fields] = {}
        for number, (offset, key, row) in enumerate(self._sums):
            transaction[key] = row
            if number + 1 == len(self._sums) or self._sums[number + 1][0] > offset + 1:
                yield transaction
                transaction = {}

    @staticmethod
    def _find(
        published: dict[Key, Fields], transactions: Iterator[dict[Key, Fields]], wanted: Replayed, what: str
    ) -> None:
        """Add transactions to `published` until it has these sums.

        Raises:
            AssertionError: no transaction ends with them.
        """
        while differing := wanted.differing(published):
            transaction = next(transactions, None)
            assert transaction is not None, f"{what}: no transaction ends with them: {differing}"
            published |= transaction

    def _compare_rows(self, up_to: Mapping[int, int], wanted: Replayed, what: str) -> None:
        """Require that the rows restore a table with the replay's sums."""
        latest = LatestRows()
        for number, (shard, key, value) in enumerate(self._rows):
            if number < up_to[shard]:
                latest.add(key, value, partition=shard)
        differing = wanted.differing({total.metric: fields_of(total.value()) for total in _totals(latest)})
        assert not differing, f"{what}: {differing}"


def _totals(latest: LatestRows) -> list[sums.Sum]:
    changes = []
    for state in restore(latest).states:
        table = Table(state)
        table.notice_silence()
        table.publish_all()
        changes.append(table.outputs())
    if len(changes) == 1:
        return changes[0].totals
    combined = CombinerGroup()
    for one in changes:
        combined.update(one.shard_sums)
    return combined.changes()


def _some(steps: list[Step], number: int) -> list[Step]:
    """Return about this number of steps, and the last one."""
    return [*steps[: -1 : len(steps) // number or 1], steps[-1]]


def _replay(records: Iterable[TopicRecord], positions: Positions) -> Replayed:
    mine = [record for record in records if record.offset < positions.get(record.partition, 0)]
    return replay(sorted(mine, key=lambda record: (record.partition, record.offset)))
