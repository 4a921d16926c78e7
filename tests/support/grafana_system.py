"""A simulated system for the dashboards and alert rules: its points and its /metrics, from the product's own code.

It runs two instances of the app orders, the aggregator's table, the shipper's mapping and the lag collector in steps,
on a manual clock. It can have one fault: the slug of the alert rule that must fire, or `aggregator-stuck`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from support.lag import Rounds, group, round_of
from support.steps import run
from tallystream import record
from tallystream.registry import MetricRegistry
from tallystream.testing import ManualClock
from tallystream.ulid import new_ulid
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.instances import INSTANCES_NAME
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.shipping.tail import Record as Read
from tallystream_aggregator.sinks.base import Point, is_sum
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.epochs import EpochRow
from tallystream_aggregator.table import Record, State, Table
from tallystream_aggregator.table.rows import ShardRow
from tallystream_dashboards.data.compare import Counted, Range, compare
from tallystream_dashboards.data.compare import Place as Partition
from tallystream_dashboards.data.consumers import record_points
from tallystream_dashboards.data.sides import CounterKey, OfConsumer
from tallystream_dashboards.lag.collector.http_api import LagApi

STEP_MS = 15_000
STEPS = 100
FAULT_STEPS = 28
"""How many steps before the end a fault begins: 7 minutes."""
SPECIAL = 'odd "name" / (x) a|b'
"""A metric's name with special characters of Flux, InfluxQL and regular expressions."""
MINUTES = 2
"""The value of the threshold `stopped_minutes`; the default would need hours of history."""


class Instance:
    """One life of an instance: its registry, and the offsets from `begin` to `end` that it processed."""

    def __init__(self, app: str, name: str, registry: MetricRegistry, now_ms: int, begin: int = 0) -> None:
        self.app, self.name, self.registry = app, name, registry
        self.begin = self.end = begin
        self._life, self._seq = new_ulid(now_ms), 0

    def snapshot(self, now_ms: int) -> tuple[bytes, bytes]:
        """Return key and value of the next record."""
        self._seq += 1
        snapshot = record.Snapshot(
            app=self.app,
            life=self._life,
            part=0,
            seq=self._seq,
            prev=now_ms - STEP_MS if self._seq > 1 else None,
            ts=now_ms,
            every_ms=STEP_MS,
            final=False,
            metrics=self.registry.snapshot(),
        )
        return self.name.encode(), record.encode(snapshot)


class System:
    """A system that ran for STEPS steps until `end_ms`; `points` and `scrapes` are its output.

    `expose` takes the points of the sums, batch by batch, and returns the text of a scrape.
    """

    def __init__(self, end_ms: int, fault: str = "", expose: Callable[[Sequence[Point]], str] | None = None) -> None:
        self.points: list[Point] = []
        self.scrapes: list[tuple[int, str]] = []
        self._fault = fault
        self._now_ms = start_ms = end_ms - STEPS * STEP_MS
        self._clock = ManualClock(start_ms)
        self._table, self._offset = Table(State()), 0
        self._topics = Topics("")
        self._mapper = PointMapper(self._topics)
        self._expose = expose or (lambda _: "")
        self._health = {name: Health(name, HealthSettings(None), clock=self._clock) for name in ("aggregate", "ship")}
        for health in self._health.values():
            health.status.run()
        self._rounds = Rounds()
        self._lag_api = LagApi(STEP_MS / 1000, {}, monotonic=self._clock.monotonic, clock=lambda: self._now_ms / 1000)
        self._orders = [self._instance(name, 0) for name in ("orders-1", "orders-2")]
        self._own = [
            Instance("tallystream", f"{name}@host", health.internal_metrics.registry, start_ms)
            for name, health in self._health.items()
        ]
        for step in range(STEPS):
            self._now_ms = start_ms + (step + 1) * STEP_MS
            self._clock.advance(STEP_MS / 1000)
            self._step(step)

    def _has(self, fault: str, step: int, steps: int = FAULT_STEPS) -> bool:
        return self._fault == fault and step >= STEPS - steps

    def _instance(self, name: str, begin: int) -> Instance:
        return Instance("orders", name, MetricRegistry("orders", clock=self._clock), self._now_ms, begin)

    def _step(self, step: int) -> None:
        if step == STEPS // 2:  # a restart: a new life of the same instance continues at the same offset
            self._orders[1] = self._instance("orders-2", self._orders[1].end)
        for partition, instance in enumerate(self._orders):
            self._process(step, partition, instance)
        text = self._health["ship"].metrics().text
        if not self._has("aggregator-down", step):
            # A stuck aggregator exposes metrics, but has not checked for records for 4 minutes.
            text += "" if self._has("aggregator-stuck", step, 16) else self._aggregate(step)
            text += self._health["aggregate"].metrics().text
        if not self._has("collector-down", step):
            self._collect_lag(step)
            text += self._lag_api.metrics().text
        self.scrapes.append((self._now_ms, text))

    def _process(self, step: int, partition: int, instance: Instance) -> None:
        registry = instance.registry
        n = 0 if self._has("sum-stopped", step, 13) else 30
        instance.end += n
        with registry.atomic():
            repeated = 5 if self._has("processed-twice", step) and step % 5 == 0 else 0
            registry.counter("records.processed", tags={"topic": "orders"}).inc(n + repeated)
            registry.position("orders", partition, name="records.processed.position").advance(
                instance.begin, instance.end
            )
        registry.meter("requests").mark(7)
        registry.histogram("payload.size").update(100 + step)
        registry.timer("request.time").update(0.1 + partition / 10)
        registry.gauge("queue.length").set(step % 9)
        registry.updown("jobs").inc(1 + step % 2)
        registry.counter(SPECIAL).inc()

    def _aggregate(self, step: int) -> str:
        """Apply the records of all instances, and map the table's changes to points; return a scrape of them."""
        silent = "orders-2" if self._has("instance-silent", step) else ""
        sending = [*(instance for instance in self._orders if instance.name != silent), *self._own]
        sent = [instance.snapshot(self._now_ms) for instance in sending]
        if step == 2 or self._has("dead-letters", step, 4):
            sent.append((b"orders-1", b"not JSON"))
        records = [
            Record("metrics", 0, offset, self._now_ms, key, value)
            for offset, (key, value) in enumerate(sent, start=self._offset)
        ]
        self._offset += len(sent)
        changes = run(self._table, records)
        totals = [*changes.totals, *changes.instances]
        shipped = [Read(self._topics.agg, at, one.key(), one.value()) for at, one in enumerate(totals)]
        shipped += [Read(self._topics.events, at, one.key(), one.value()) for at, one in enumerate(changes.events)]
        rows = [one for one in changes.rows if one.key.startswith((b'["life"', b'["shard"'))]
        shipped += [Read(self._topics.table, at, one.key, one.value()) for at, one in enumerate(rows)]
        points = self._mapper.points(shipped)
        self.points += points
        positions = {Place("metrics", 0): self._offset}
        shards = [one.row for one in rows if isinstance(one.row, ShardRow)]
        self._health["aggregate"].progress.watched(positions, positions, shards, records=self._offset, generation=1)
        self._health["aggregate"].progress.epoch([EpochRow(0, steps=len(sent), seconds=60.0, waited_s=58.0)])
        self._health["aggregate"].status.checked()
        self._health["ship"].internal_metrics.set("tallystream.ship.store_unavailable", 0)
        for name, n in (("points", len(points)), ("rejected", 0), ("unreadable", 0)):
            self._health["ship"].internal_metrics.add(f"tallystream.ship.{name}", n)
        self._health["ship"].internal_metrics.add("tallystream.input.records", len(shipped))
        self._health["ship"].status.checked()
        return self._expose([one for one in points if is_sum(one.measurement) or one.measurement == INSTANCES_NAME])

    def _collect_lag(self, step: int) -> None:
        """Run a round of the lag collector; each partition gets 30 records a step."""
        end = 30 * (step + 1)
        lagging = 450 / STEP_MS * 1000 * 30  # 450 s
        billing = max(0, end - 5 - (lagging if self._has("lag-seconds", step, STEPS) else 0))
        stopped = self._has("lag-status", step)
        if stopped:
            billing = 30 * (STEPS - FAULT_STEPS)
        shipper = 30 * (STEPS - FAULT_STEPS) if self._has("sink-behind", step) else end
        round_ = round_of(
            group("billing", (int(billing), end), (end, end), members=0 if stopped else 2),
            group("tallystream-aggregator", (end, end), topic="metrics", members=0),
            group("tallystream-shipper", (shipper, end), topic="metrics-agg", members=0),
        )
        lost = 7 if self._has("records-lost", step) else 0
        place, sender = Partition("orders", "0"), CounterKey("shop", "records.sent")
        sent, taken = Counted(end, {place: Range(0, end)}), Counted(end - lost, {place: Range(lost, end)})
        found = OfConsumer(sender, compare(sent, taken, taken=taken))
        records = record_points({CounterKey("orders", "records.processed"): found}, self._now_ms)
        self.points += self._rounds.points(round_, self._now_ms, records)
        self._lag_api.publish(self._rounds.newest_round)
