"""The collector: its groups, its schedule, and what happens while the broker or the store is unavailable."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.lag import group, round_of
from tallystream_aggregator.kafka.lease import GROUP as LEASE
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.lag.collector.collector import Collector, next_round
from tallystream_dashboards.lag.collector.kafka_admin import BrokerUnavailableError
from tallystream_dashboards.lag.collector.recorder import WriteBuffer
from tallystream_dashboards.lag.collector.settings import CollectSettings, Patterns
from tallystream_dashboards.lag.collector.tracker import LagTracker, Round
from tallystream_dashboards.lag.status import Rules
from tallystream_dashboards.lag.storage import LAG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_dashboards.lag.offsets import RoundOffsets


class Store:
    """A sink in memory that can be unavailable, and whose answers can be lost."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.unavailable = False
        self.lose_answers = False

    def setup(self) -> None:
        """Do nothing."""
        self._check()

    def write(self, points: Sequence[Point]) -> None:
        """Store all points, or none."""
        self._check()
        self.points += points
        if self.lose_answers:
            raise SinkUnavailableError("no answer")

    def delete(self, measurement: str, *, start_ms: int, end_ms: int) -> None:
        """Delete points."""
        self._check()
        self.points = [
            one for one in self.points if one.measurement != measurement or not start_ms <= one.ts_ms < end_ms
        ]

    def close(self) -> None:
        """Do nothing."""

    def _check(self) -> None:
        if self.unavailable:
            raise SinkUnavailableError("no answer")


class Broker:
    """A broker with one more record each round, which can be unavailable."""

    def __init__(self) -> None:
        self.unavailable = False
        self.end = 9
        self.now_ms = 0

    def fetch(self, _patterns: Patterns, _known: object) -> RoundOffsets:
        """Return the offsets of one group."""
        if self.unavailable:
            raise BrokerUnavailableError("connection refused")
        self.end += 1
        return replace(round_of(group("g", (4, self.end - 1))), ts_ms=self.now_ms)

    def last_stable(self, _partitions: object) -> dict[tuple[str, int], int]:
        """Return no offsets."""
        return {}


def point(ts_ms: int) -> Point:
    return Point("m", {}, {"v": 1}, ts_ms)


def collector(store: Store, broker: Broker) -> Collector:
    seconds = iter(range(1_000))
    now = -1

    def clock() -> float:
        return now

    tracker = LagTracker(broker, Patterns(), Rules(), clock=clock)

    def fetch() -> Round:
        nonlocal now
        now = next(seconds)
        broker.now_ms = now * 1000
        return tracker.round()

    return Collector(fetch, store, publish=lambda _: None, after_write=lambda: None)


def lags(store: Store) -> list[tuple[int, object]]:
    """Return the time and the lag of each partition's point."""
    return [(one.ts_ms, one.fields["lag"]) for one in store.points if one.measurement == LAG]


def test_points_wait_for_the_store_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """While the store is unavailable rounds are kept. Then they are written, oldest first. Both are logged once."""
    store, broker = Store(), Broker()
    running = collector(store, broker)
    store.unavailable = True
    assert [running.round() for _ in range(3)] == [False] * 3
    store.unavailable = False
    assert running.round()
    assert lags(store) == [(0, 5), (1000, 6), (2000, 7), (3000, 8)]
    assert [re.split("[,;]", record.getMessage())[0] for record in caplog.records] == [
        "the store is unavailable",
        "the store is available again after 3 rounds",
    ]


def test_an_unavailable_broker_leaves_a_gap(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds without the broker write nothing. The outage and its end are logged once."""
    store, broker = Store(), Broker()
    running = collector(store, broker)
    broker.unavailable = True
    assert [running.round() for _ in range(2)] == [False, False]
    broker.unavailable = False
    assert running.round()
    assert lags(store) == [(2000, 5)]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_the_buffer_is_bounded_and_drops_the_oldest() -> None:
    """Above the limit the oldest rounds are dropped and counted."""
    buffer = WriteBuffer(limit=5)
    for ts in range(4):
        buffer.add([point(ts), point(ts)])
    store = Store()
    buffer.write_to(store)
    assert ([one.ts_ms for one in store.points], buffer.dropped, len(buffer)) == ([2, 2, 3, 3], 4, 0)


def test_one_round_larger_than_the_limit_is_kept() -> None:
    """The newest round is never dropped, however large it is."""
    buffer = WriteBuffer(limit=2)
    buffer.add([point(ts) for ts in range(9)])
    assert (len(buffer), buffer.dropped) == (9, 0)


def test_points_that_were_not_acknowledged_are_written_again() -> None:
    """A round counts as written only when the store says so: without an answer it is written again."""
    buffer, store = WriteBuffer(), Store()
    buffer.add([point(1)])
    store.lose_answers = True
    with pytest.raises(SinkUnavailableError):
        buffer.write_to(store)
    assert len(buffer) == 1
    store.lose_answers = False
    buffer.write_to(store)
    assert [one.ts_ms for one in store.points] == [1, 1]


def test_the_lease_is_not_collected() -> None:
    """The group of the aggregators' lease reads no records, so it is left out, with a topic prefix, too."""
    selected = CollectSettings(store=StoreSettings.parse("local:x.db", env={}), exclude=("other",)).patterns
    assert [group for group in ("orders", "other", LEASE, "prod-" + LEASE) if selected.match(group)] == ["orders"]


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
    """Patterns match complete names, case-sensitively. An exclusion takes precedence over an inclusion."""
    selected = Patterns(include, exclude)
    assert {name for name in ("billing", "billing-test", "Orders") if selected.match(name)} == matched


@given(st.floats(0, 1e6), st.floats(1, 60), st.floats(0, 1e4))
def test_rounds_keep_to_the_schedule(first: float, interval: float, late: float) -> None:
    """The next round is not in the past, at most one interval away, and a multiple of the interval after the first."""
    now = first + late
    due = next_round(first, interval, now)
    assert (due - first) / interval == pytest.approx(round((due - first) / interval))
    assert due >= now - 1e-6
    assert due - max(now, first) <= interval + 1e-6
