"""Rounds that take long, with perfect clocks: no skew, and no age above the true one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from support.lag_cluster import Cluster, Group
from tallystream_dashboards.lag.collector.kafka_admin import OffsetFetcher
from tallystream_dashboards.lag.collector.settings import Patterns
from tallystream_dashboards.lag.collector.tracker import LagTracker, Watched
from tallystream_dashboards.lag.status import Rules
from tallystream_dashboards.lag.time_lag import at_least

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

T0 = 1_700_000_100.0
PLACE = ("orders", 0)


class Slow:
    """A partition whose ends are asked for at `asked` s, read at `read` s and answered at `answered` s of a round."""

    def __init__(self, asked: float, read: float, answered: float) -> None:
        self.now = T0
        self._phases = (asked, read, answered)
        self.cluster = Cluster()
        self.cluster.groups["g"] = Group({PLACE: 1})
        self.cluster.ends[PLACE] = 1
        self.cluster.on_request = self._pass
        self.came: list[float] = [T0]
        self.began = T0
        admin = cast("AdminClient", self.cluster)

        def clock() -> float:
            return self.now

        asker = OffsetFetcher(admin, timeout=30, stopping=lambda: False, clock=clock)
        self.watch = LagTracker(asker, Patterns(), Rules(), clock=clock)

    def sample(self, *records: float) -> Watched:
        """Look; records come at these seconds of the round, each with the time as its timestamp."""
        self.began = self.now
        self.due = [self.began + second for second in records]
        found = self.watch.sample()
        self._produce(self.now)
        return found

    def _pass(self, request: str) -> None:
        if request == "groups":
            self.now = self.began + self._phases[0]
            return
        self.now = self.began + self._phases[1]
        self._produce(self.now)
        self.now = self.began + self._phases[2]

    def _produce(self, until: float) -> None:
        self.came += [came for came in self.due if came <= until]
        self.due = [came for came in self.due if came > until]
        self.cluster.ends[PLACE] = len(self.came)
        self.cluster.newest[PLACE] = (len(self.came) - 1, round(self.came[-1] * 1000))


@pytest.mark.parametrize(("asked", "read", "answered"), [(8, 8, 8), (0, 8, 8), (0, 0, 8), (0, 8, 16)])
def test_a_slow_round_is_no_skew(asked: float, read: float, answered: float) -> None:
    """The time passes before the ends are asked for, before they are read, or while the answer is on its way."""
    slow = Slow(asked, read, answered)
    for number in range(12):
        slow.now += 40  # the timestamps are asked for twice a minute
        (state,) = slow.sample(*((0.1, 7.9) if number % 4 == 0 else (0.1,) if number % 4 == 2 else ())).states
        assert [each.skew_ms or 0 for each in state.partitions] == [0]


def test_a_slow_round_adds_nothing_to_an_age() -> None:
    """A record that came while the round went on is no older than it is: its age is counted up to the answer."""
    slow = Slow(8, 8, 8)
    slow.sample(7.9)
    for _ in range(5):
        found = slow.sample(7.9)
        (state,) = found.states
        assert 0 < at_least(state.seconds) <= found.ts_ms / 1000 - slow.came[1] + 0.001
