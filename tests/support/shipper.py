"""A shipper on a simulated broker, and a scripted lease, for unit tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from support.simulation.direct import Direct
from support.simulation.system import TOPICS
from tallystream.process.signals import SignalSafeEvent
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.shipping import shipper as module
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.shipping.shipper import POLL_S, NoLease, Shipper
from tallystream_aggregator.shipping.tail import Tail
from tallystream_aggregator.stream.broker import BrokerError, Place
from tallystream_aggregator.sums import Sum

AGG = Place(TOPICS.agg, 0)


class ScriptedLease:
    """A lease that is held. `log` has the committed offset; an exclamation mark means that it waited for the answer."""

    def __init__(self, log: list[str]) -> None:
        self.held, self.times, self.offset = True, 1, -1001
        self.log = log
        self.on_check: Callable[[float], object] = lambda _: None

    def check(self, seconds: float = 0.0) -> None:
        """Let the group decide, if a test wants that."""
        assert 0 <= seconds <= POLL_S
        if seconds:
            self.on_check(seconds)

    def lose(self) -> None:
        """Let another shipper have the lease."""
        self.held = False

    def pass_on(self) -> None:
        """Let another shipper have the lease, and give it back."""
        self.held, self.times = True, self.times + 1

    def committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        for one in partitions:
            one.offset = self.offset
        return [one for one in partitions if one.offset >= 0]

    def commit(self, offsets: list[TopicPartition], *, wait: bool) -> None:
        self.log.append(", ".join(f"to {one.offset}" for one in offsets) + ("!" if wait else ""))

    def close(self) -> None:
        self.log.append("closed")


class Bench:
    """A shipper of `metrics-agg`. `now_s` is the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sink: Any, lease: Any = None, letters: Any = None) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        self.direct, self.sink = Direct(), sink
        self.stop, self.health = SignalSafeEvent(), Health("ship", HealthSettings(own_metrics=False))
        tail, mapper = Tail(self.direct.broker, lambda: [AGG]), PointMapper(TOPICS)
        self.shipper = Shipper(lease or NoLease(), tail, mapper, sink, letters, stop=self.stop, health=self.health)

    def publish(self, *counts: int, name: str = "n") -> None:
        """Append sums of a counter."""
        for count in counts:
            row = Sum(app="a", name=name, type="counter", count=count, ts=count)
            self.direct.cluster.append(AGG, name.encode(), row.value())

    def step(self, *counts: int, answers: bool = True) -> bool:
        """Publish these sums, and ship what there is. The brokers answer, or no request succeeds."""
        self.publish(*counts)
        self.now_s += module.ASK_INTERVAL_S
        self.direct.fail = (lambda _: None) if answers else self._fail
        return self.shipper.step()

    def _fail(self, what: str) -> None:
        raise BrokerError(f"{what}: no answer")

    def reason(self) -> str | None:
        """Return why it is not ready."""
        return self.health.status.unready_reason()

    def metric(self, name: str) -> float:
        """Return an internal metric."""
        families = self.health.internal_metrics.families()
        return next(sample.value for family in families for sample in family.samples if sample.name == name)
