"""Slow rounds show no age above the true one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from support.lag_cluster import Cluster, Group
from tallystream_dashboards.lag.collector.kafka_admin import OffsetFetcher
from tallystream_dashboards.lag.collector.settings import Patterns
from tallystream_dashboards.lag.collector.tracker import LagTracker, Round
from tallystream_dashboards.lag.status import Rules

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

T0 = 1_700_000_100.0
PARTITION = ("orders", 0)


class SlowCluster:
    """A partition whose end is requested at `requested` s of a round, read at `read` s and answered at `answered` s."""

    def __init__(self, requested: float, read: float, answered: float) -> None:
        self.now = T0
        self._phases = (requested, read, answered)
        self.cluster = Cluster()
        self.cluster.groups["g"] = Group({PARTITION: 1})
        self.cluster.ends[PARTITION] = 1
        self.cluster.on_request = self._wait
        self.arrived: list[float] = [T0]
        self.began = T0
        admin = cast("AdminClient", self.cluster)

        def clock() -> float:
            return self.now

        fetcher = OffsetFetcher(admin, timeout=30, stopping=lambda: False, clock=clock)
        self.tracker = LagTracker(fetcher, Patterns(), Rules(), clock=clock)

    def round(self, *records: float) -> Round:
        """Run a round. Records arrive at these seconds of it, each with the time as its timestamp."""
        self.began = self.now
        self.due = [self.began + second for second in records]
        result = self.tracker.round()
        self._produce(self.now)
        return result

    def _wait(self, request: str) -> None:
        if request == "groups":
            self.now = self.began + self._phases[0]
            return
        self.now = self.began + self._phases[1]
        self._produce(self.now)
        self.now = self.began + self._phases[2]

    def _produce(self, until: float) -> None:
        self.arrived += [time for time in self.due if time <= until]
        self.due = [time for time in self.due if time > until]
        self.cluster.ends[PARTITION] = len(self.arrived)


def test_a_slow_round_adds_nothing_to_an_age() -> None:
    """The age of a record that arrives during the round is counted up to the answer, so it is not too high."""
    cluster = SlowCluster(8, 8, 8)
    cluster.round(7.9)
    for _ in range(5):
        result = cluster.round(7.9)
        (state,) = result.states
        assert state.time_lag is not None
        assert 0 < state.time_lag.seconds <= result.ts_ms / 1000 - cluster.arrived[1] + 0.001
