"""A small system for the dashboards and alert rules: its points and its /metrics, all made by the product's own code.

Two instances of the app orders, an aggregator (its table), a shipper (its points) and a lag collector live through some
minutes, a step at a time, on clocks that are turned by hand. One trouble may befall them: the slug of the alert rule
that has to notice it, or `aggregator-stuck`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from support.lag import Rounds, group, round_of
from tallystream import record
from tallystream.registry import MetricRegistry
from tallystream.testing import ManualClock
from tallystream.ulid import new_ulid
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.kafka.ledger import Epochs
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.points import PointMapper, Shipped, is_sum
from tallystream_aggregator.table import Record, State, Table
from tallystream_dashboards.lag.collector.http_api import LagApi

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tallystream_aggregator.sinks.base import Point

STEP_MS = 15_000
STEPS = 100
LATE = 28
"""How many steps before the end a trouble begins: 7 minutes."""
ODD = 'odd "name" / (x) a|b'
"""A metric's name that means something in Flux, InfluxQL and regular expressions."""
MINUTES = 2
"""The threshold `stopped_minutes` to be used with it: the default would need hours of history."""


class Instance:
    """One life of an instance: its registry, how it sends it, and the offsets `begin` to `end` that it processed."""

    def __init__(self, app: str, name: str, registry: MetricRegistry, now_ms: int, begin: int = 0) -> None:
        self.app, self.name, self.registry = app, name, registry
        self.begin = self.end = begin
        self._life, self._seq = new_ulid(now_ms), 0

    def snapshot(self, now_ms: int) -> tuple[bytes, bytes]:
        """Return key and value of its next record."""
        self._seq += 1
        made = record.Snapshot(
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
        return self.name.encode(), record.encode(made)


class System:
    """The system, from `end_ms` - STEPS x STEP_MS to `end_ms`; `points` and `scrapes` are what came of it.

    `expose` takes the sums' points, batch by batch, and returns what a scrape of them gives.
    """

    def __init__(
        self, end_ms: int, folder: Path, trouble: str = "", expose: Callable[[Sequence[Point]], str] | None = None
    ) -> None:
        self.points: list[Point] = []
        self.scrapes: list[tuple[int, str]] = []
        self._trouble = trouble
        self._now_ms = start_ms = end_ms - STEPS * STEP_MS
        self._clock = ManualClock(start_ms)
        self._table, self._offset, self._batch = Table(State()), 0, 0
        self._topics = Topics("")
        self._translator = PointMapper(self._topics, folder / f"checkpoint-{trouble}", Epochs(lambda: None))
        self._expose = expose or (lambda _: "")
        self._health = {name: Health(name, HealthSettings(None), clock=self._clock) for name in ("aggregate", "ship")}
        for health in self._health.values():
            health.status.run()
        self._rounds = Rounds()
        self._lag_api = LagApi(STEP_MS / 1000, _no_store, clock=lambda: self._now_ms / 1000)
        self._orders = [self._instance(name, 0) for name in ("orders-1", "orders-2")]
        self._own = [
            Instance("tallystream", f"{name}@host", health.internal_metrics.registry, start_ms)
            for name, health in self._health.items()
        ]
        for step in range(STEPS):
            self._now_ms = start_ms + (step + 1) * STEP_MS
            self._clock.advance(STEP_MS / 1000)
            self._step(step)

    def _has(self, trouble: str, step: int, late: int = LATE) -> bool:
        return self._trouble == trouble and step >= STEPS - late

    def _instance(self, name: str, begin: int) -> Instance:
        return Instance("orders", name, MetricRegistry("orders", clock=self._clock), self._now_ms, begin)

    def _step(self, step: int) -> None:
        if step == STEPS // 2:  # a restart: a new life under the same name goes on where the old one was
            self._orders[1] = self._instance("orders-2", self._orders[1].end)
        for number, one in enumerate(self._orders):
            self._work(step, number, one)
        text = self._health["ship"].metrics().text
        if not self._has("aggregator-down", step):
            # One that is stuck is there, for 4 minutes, and does not even look for records.
            text += "" if self._has("aggregator-stuck", step, 16) else self._aggregate(step)
            text += self._health["aggregate"].metrics().text
        if not self._has("collector-down", step):
            self._look(step)
            text += self._lag_api.metrics().text
        self.scrapes.append((self._now_ms, text))

    def _work(self, step: int, number: int, one: Instance) -> None:
        made = one.registry
        n = 0 if self._has("sum-stopped", step, 13) else 30
        one.end += n
        with made.atomic():
            again = 5 if self._has("processed-twice", step) and step % 5 == 0 else 0
            made.counter("records.processed", tags={"topic": "orders"}).inc(n + again)
            made.position("orders", number, name="records.processed.position").advance(one.begin, one.end)
        made.meter("requests").mark(7)
        made.histogram("payload.size").update(100 + step)
        made.timer("request.time").update(0.1 + number / 10)
        made.gauge("queue.length").set(step % 9)
        made.updown("jobs").inc(1 + step % 2)
        made.counter(ODD).inc()

    def _aggregate(self, step: int) -> str:
        """Let the table take what everyone sends, and the shipper write what comes of it; return what it exposes."""
        senders = [one for one in self._orders if one.name != "orders-2" or not self._has("instance-silent", step)]
        sent = [one.snapshot(self._now_ms) for one in (*senders, *self._own)]
        if step == 2 or self._has("dead-letters", step, 4):
            sent.append((b"orders-1", b"no JSON"))
        self._batch += 1
        self._table.begin_batch()
        self._table.apply(
            Record("metrics", 0, self._offset + at, self._now_ms, key, value) for at, (key, value) in enumerate(sent)
        )
        self._offset += len(sent)
        self._table.notice_silence()
        changes = self._table.changes()
        written = {"epoch": 1, "batch": self._batch}
        shipped = [
            Shipped(self._topics.agg, at, one.key(), one.value(**written)) for at, one in enumerate(changes.totals)
        ]
        shipped += [Shipped(self._topics.events, at, one.key(), one.value()) for at, one in enumerate(changes.events)]
        rows = [one for one in changes.rows if one.key.startswith((b'["life"', b'["shard"'))]
        shipped += [Shipped(self._topics.table, at, one.key, one.value(**written)) for at, one in enumerate(rows)]
        points = self._translator.points(shipped)
        self.points += points
        shards = [(one.value(**written) or b"").decode() for one in rows if one.key.startswith(b'["shard"')]
        self._health["aggregate"].progress(self._told(len(sent), {"metrics": {"0": self._offset}}, shards))
        self._health["ship"].internal_metrics.set("tallystream.ship.store_unavailable", 0)
        for name, n in (("points", len(points)), ("rejected", 0), ("unreadable", 0), ("stale", 0)):
            self._health["ship"].internal_metrics.add(f"tallystream.ship.{name}", n)
        self._health["ship"].progress(self._told(len(shipped), {"metrics-agg": {"0": 20 * self._batch}}, []))
        return self._expose([one for one in points if is_sum(one.measurement)])

    def _told(self, rows: int, ends: dict[str, dict[str, int]], shards: list[str]) -> dict[str, Any]:
        """Return what Spark tells of a batch."""
        return {
            "timestamp": datetime.fromtimestamp(self._now_ms / 1000, UTC).isoformat(),
            "batchId": self._batch,
            "numInputRows": rows,
            "processedRowsPerSecond": rows / 0.5,
            "durationMs": {"addBatch": 400 + self._batch, "walCommit": 20, "triggerExecution": 500 + self._batch},
            "stateOperators": [{"numRowsTotal": 1, "memoryUsedBytes": 8192}],
            "sources": [{"endOffset": ends, "latestOffset": ends}],
            "observedMetrics": {"table": {"shards": shards}},
        }

    def _look(self, step: int) -> None:
        """Let the lag collector look: each partition gets 30 records a step."""
        end = 30 * (step + 1)
        lagging = 450 / STEP_MS * 1000 * 30  # 450 s
        billing = max(0, end - 5 - (lagging if self._has("lag-seconds", step, STEPS) else 0))
        stopped = self._has("lag-status", step)
        if stopped:
            billing = 30 * (STEPS - LATE)
        shipper = 30 * (STEPS - LATE) if self._has("sink-behind", step) else end
        round_ = round_of(
            group("billing", (int(billing), end), (end, end), members=0 if stopped else 2),
            group("tallystream-aggregator", (end, end), topic="metrics", members=0),
            group("tallystream-shipper", (shipper, end), topic="metrics-agg", members=0),
        )
        skew_ms = 37_000 if self._has("clock-skew", step) else 0
        self._rounds.newest_records = {("orders", 0): (end - 1, self._now_ms + skew_ms)}
        self.points += self._rounds.points(round_, self._now_ms)
        self._lag_api.publish(self._rounds.newest_round)


def _no_store() -> Any:
    raise AssertionError("no past moment is asked for")
