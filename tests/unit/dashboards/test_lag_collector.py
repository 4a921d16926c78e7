"""The collector's decisions: what is watched, when, and what becomes of points while something is away."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.lag import found, group
from tallystream_aggregator.kafka.lease import GROUP as LEASE
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.lag import LAG
from tallystream_dashboards.lag.collector.collector import Collector, next_round
from tallystream_dashboards.lag.collector.job import CollectSettings, watched
from tallystream_dashboards.lag.collector.kafka_admin import BrokerUnavailableError
from tallystream_dashboards.lag.collector.recorder import WriteBuffer
from tallystream_dashboards.lag.collector.settings import Patterns
from tallystream_dashboards.lag.collector.tracker import LagTracker, Watched
from tallystream_dashboards.lag.status import Rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_dashboards.lag.model import Round


class Store:
    """A sink in memory that can be away, and can fail after it has taken a part."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.away = False
        self.fail_flush = False

    def setup(self) -> None:
        """Make nothing."""
        self._check()

    def write(self, points: Sequence[Point]) -> None:
        """Take all points, or none."""
        self._check()
        self.points += points

    def flush(self) -> None:
        """Fail where the test says so."""
        if self.fail_flush:
            raise SinkUnavailableError("no answer")

    def close(self) -> None:
        """Nothing is held."""

    def _check(self) -> None:
        if self.away:
            raise SinkUnavailableError("no answer")


class Broker:
    """Answers every round, or is away; each round a record more has come."""

    def __init__(self) -> None:
        self.away = False
        self.end = 9
        self.now_ms = 0

    def ask(self, _patterns: Patterns, _ledger: object, _known: object) -> Round:
        """Return the round, or raise."""
        if self.away:
            raise BrokerUnavailableError("connection refused")
        self.end += 1
        return replace(found(group("g", (4, self.end - 1))), ts_ms=self.now_ms)

    def newest(self, _places: object) -> dict[tuple[str, int], tuple[int, int]]:
        """Nothing has a timestamp."""
        return {}


def point(ts_ms: int) -> Point:
    return Point("m", {}, {"v": 1}, ts_ms)


def collector(store: Store, broker: Broker) -> Collector:
    seconds = iter(range(1_000))
    now = -1

    def clock() -> float:
        return now

    watch = LagTracker(broker, Patterns(), Rules(), clock=clock)

    def sample() -> Watched:
        nonlocal now
        now = next(seconds)
        broker.now_ms = now * 1000
        return watch.sample()

    return Collector(sample, store)


def lags(store: Store) -> list[tuple[int, object]]:
    """Return time and lag of the points of partitions."""
    return [(one.ts_ms, one.fields["lag"]) for one in store.points if one.measurement == LAG]


def test_a_round_writes_one_point_a_partition() -> None:
    """A round that goes through says so, and its points carry the time of the round."""
    store = Store()
    assert collector(store, Broker()).round()
    assert lags(store) == [(0, 5)]


def test_points_wait_for_the_store_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds are kept while the store is away, and written oldest first when it is back; each is said once."""
    store, broker = Store(), Broker()
    collecting = collector(store, broker)
    store.away = True
    assert [collecting.round() for _ in range(3)] == [False] * 3
    store.away = False
    assert collecting.round()
    assert lags(store) == [(0, 5), (1000, 6), (2000, 7), (3000, 8)]
    assert [re.split("[,;]", record.getMessage())[0] for record in caplog.records] == [
        "the store is unavailable",
        "the store is available again after 3 rounds",
    ]


def test_a_broker_that_is_away_leaves_a_gap_and_no_invented_points(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds without the broker write nothing; the next one goes on, and both are said once."""
    store, broker = Store(), Broker()
    collecting = collector(store, broker)
    broker.away = True
    assert [collecting.round() for _ in range(2)] == [False, False]
    broker.away = False
    assert collecting.round()
    assert lags(store) == [(2000, 5)]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "broker unavailable in 2 rounds" in collecting.summary()


def test_the_buffer_is_bounded_and_drops_the_oldest() -> None:
    """Past the limit the oldest rounds are given up, and counted."""
    held = WriteBuffer(limit=5)
    for ts in range(4):
        held.add([point(ts), point(ts)])
    store = Store()
    assert held.write_to(store) == 4
    assert ([one.ts_ms for one in store.points], held.dropped, len(held)) == ([2, 2, 3, 3], 4, 0)


def test_one_round_larger_than_the_limit_is_kept() -> None:
    """The newest round is never dropped, however large it is."""
    held = WriteBuffer(limit=2)
    held.add([point(ts) for ts in range(9)])
    assert (len(held), held.dropped) == (9, 0)


def test_what_was_not_flushed_is_written_again() -> None:
    """A round counts as written only once it is durable: after a failed flush it is written again."""
    held, store = WriteBuffer(), Store()
    held.add([point(1)])
    store.fail_flush = True
    with pytest.raises(SinkUnavailableError):
        held.write_to(store)
    assert len(held) == 1
    store.fail_flush = False
    assert held.write_to(store) == 1
    assert [one.ts_ms for one in store.points] == [1, 1]


def test_the_lease_is_no_group_to_watch() -> None:
    """It has a member and a partition, but reads nothing; with a prefix too."""
    patterns = watched(CollectSettings(store=StoreSettings.parse("local:x.db", env={}), exclude=("other",)))
    assert [group for group in ("orders", "other", LEASE, "prod-" + LEASE) if patterns.match(group)] == ["orders"]


@pytest.mark.parametrize(
    ("include", "exclude", "matched"),
    [
        (("*",), (), {"billing", "billing-test", "Orders"}),
        (("billing*",), (), {"billing", "billing-test"}),
        (("*",), ("*-test",), {"billing", "Orders"}),
        (("billing-test",), ("*",), set()),
        (("orders",), (), set()),
    ],
)
def test_patterns(include: tuple[str, ...], exclude: tuple[str, ...], matched: set[str]) -> None:
    """Patterns match whole names with their case; an exclusion beats an inclusion."""
    patterns = Patterns(include, exclude)
    assert {name for name in ("billing", "billing-test", "Orders") if patterns.match(name)} == matched


@given(st.floats(0, 1e6), st.floats(1, 60), st.floats(0, 1e4))
def test_rounds_keep_to_the_schedule(first: float, interval: float, late: float) -> None:
    """The next round is never in the past by more than rounding, at most one interval away, and on the grid."""
    now = first + late
    due, missed = next_round(first, interval, now)
    assert due == pytest.approx(first + (1 + missed) * interval)
    assert due >= now - 1e-6
    assert due - max(now, first) <= interval + 1e-6
