"""Up to when the store has everything, by the lag of the aggregator and the shipper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import fuzz
from support.lag import Rounds, group, round_of
from support.stores import Points
from tallystream_aggregator.sinks.base import Point
from tallystream_dashboards.data.stored import ALL, LIMIT_MS, LONGEST_MS, Stored, read_stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_dashboards.lag.offsets import GroupOffsets

START = 1_700_000_000_000
AGGREGATOR, SHIPPER = "tallystream-aggregator", "tallystream-shipper"


class Pipeline:
    """Records of `metrics` on their way to the store, and a collector that asks for offsets and then for ends.

    `appended` are the times of the records of each partition, and `summed` and `stored` how many of them have been
    published and written. A record makes a row in the partition of `metrics-agg` with its number.
    """

    def __init__(self, partitions: int = 2) -> None:
        self.now = START
        self.appended: list[list[int]] = [[] for _ in range(partitions)]
        self.summed, self.stored = [0] * partitions, [0] * partitions
        self.committed = {AGGREGATOR: [0] * partitions, SHIPPER: [0] * partitions}
        self.points: list[Point] = []
        self._rounds = Rounds()

    def append(self, partition: int) -> None:
        """A record is published."""
        self.appended[partition].append(self.now)

    def sum(self, partition: int) -> None:
        """The aggregator publishes what it has of a partition."""
        self.summed[partition] = len(self.appended[partition])

    def ship(self, partition: int) -> None:
        """The shipper writes it."""
        self.stored[partition] = self.summed[partition]

    def commit(self, partition: int) -> None:
        """Both commit what they have done."""
        self.commit_summed(partition)
        self.commit_stored(partition)

    def commit_summed(self, partition: int) -> None:
        """The aggregator commits what it has published."""
        self.committed[AGGREGATOR][partition] = self.summed[partition]

    def commit_stored(self, partition: int) -> None:
        """The shipper commits what it has written."""
        self.committed[SHIPPER][partition] = self.stored[partition]

    def collect(
        self,
        took_ms: int = 0,
        before_ends: Sequence[int] = (),
        after_ends: Sequence[int] = (),
        of: Sequence[str] = (AGGREGATOR, SHIPPER),
        others: Sequence[GroupOffsets] = (),
    ) -> None:
        """Run a round of some groups, and of others. While it asks, records are appended and published."""
        asked = {name: list(offsets) for name, offsets in self.committed.items()}
        for partition in before_ends:
            self.append(partition)
            self.sum(partition)
        ends = {AGGREGATOR: list(map(len, self.appended)), SHIPPER: list(self.summed)}
        self.now += took_ms // 2
        for partition in after_ends:
            self.append(partition)
        self.now += took_ms - took_ms // 2
        groups = [
            group(name, *zip(asked[name], ends[name], strict=True), topic=topic)
            for name, topic in ((AGGREGATOR, "metrics"), (SHIPPER, "metrics-agg"))
            if name in of
        ]
        points = self._rounds.points(round_of(*groups, *others), self.now)
        took = {"took_s": took_ms / 1000}
        self.points += [*points[:-1], replace(points[-1], fields={**points[-1].fields, **took})]

    def found(self, at_ms: int | None = None) -> Stored:
        """Return what the collector's points say."""
        return read_stored(Points(self.points), self.now if at_ms is None else at_ms)

    @property
    def waiting(self) -> list[int]:
        """When each record was appended that is not in the store."""
        return [ms for times, stored in zip(self.appended, self.stored, strict=True) for ms in times[stored:]]


NAMES = ("append", "sum", "ship", "commit_summed", "commit_stored", "collect")
of_partition = st.integers(0, 1)
steps = st.tuples(st.integers(0, 900), st.sampled_from(NAMES), of_partition, *[st.lists(of_partition, max_size=1)] * 2)


@fuzz.examples(150)
@given(history=st.lists(steps, min_size=10, max_size=60), partitions=st.sampled_from([1, 2]))
def test_nothing_that_was_published_until_then_is_missing(
    history: list[tuple[int, str, int, list[int], list[int]]], partitions: int
) -> None:
    """This holds whatever is appended, summed, shipped and committed between and within the rounds."""
    pipeline = Pipeline(partitions)
    for ms, name, partition, *within in history:
        if name == "collect":
            pipeline.collect(1 + ms, *([one % partitions for one in several] for several in within))
        else:
            pipeline.now += ms
            getattr(pipeline, name)(partition % partitions)
    found = pipeline.found()
    if found.until_ms is not None:
        assert all(appended_ms > found.until_ms for appended_ms in pipeline.waiting)
    else:
        assert found == ALL or found.behind


def busy(seconds: int, *, lag_s: int) -> Pipeline:
    """Return a system with records and a round every second, whose store is always so far behind."""
    pipeline = Pipeline(1)
    for second in range(seconds):
        pipeline.append(0)
        number = max(0, second + 1 - lag_s)
        pipeline.summed = pipeline.stored = [number]
        pipeline.commit(0)
        pipeline.collect(took_ms=20)
        pipeline.now += 980
    return pipeline


def test_a_busy_system_is_known_as_of_some_seconds_ago() -> None:
    """Lag alone makes nothing uncertain."""
    pipeline = busy(60, lag_s=3)
    found = pipeline.found()
    assert found.behind == (AGGREGATOR,)
    assert not found.is_late(pipeline.now)
    assert found.as_of(pipeline.now) == pipeline.now - 4_001
    assert found.text(pipeline.now) == "As of 22:14:15 UTC."


def test_an_idle_system_is_known_as_of_the_newest_round() -> None:
    """Nothing was published since then, as far as the collector knows."""
    pipeline = busy(60, lag_s=0)
    assert pipeline.found() == Stored(pipeline.now - 1_001)


def test_a_moment_of_the_past_is_known_when_the_store_has_it() -> None:
    """What was behind then has reached the store meanwhile."""
    pipeline = busy(400, lag_s=200)
    then = START + 100_000
    assert pipeline.found(then) == Stored(pipeline.found().until_ms, (AGGREGATOR,))
    assert pipeline.found(then).text(then) == ""


def test_rounds_of_the_future_are_none() -> None:
    """They are of a collector whose clock was ahead, and know less than the newest one."""
    ahead, pipeline = busy(400, lag_s=0), busy(300, lag_s=200)
    now_ms = pipeline.now
    points = Points([*pipeline.points, *(one for one in ahead.points if one.ts_ms > now_ms)])
    assert read_stored(points, now_ms, clock=lambda: now_ms / 1000) == pipeline.found()
    assert pipeline.found().is_late(now_ms)


@pytest.mark.parametrize("later_ms", [0, LIMIT_MS])
def test_without_lag_all_is_taken_to_be_in_the_store(later_ms: int) -> None:
    """It is not known if no collector works, or if it leaves the groups out."""
    pipeline = Pipeline()
    if later_ms:
        pipeline.collect()
    found = pipeline.found(START + later_ms)
    assert (found, found.as_of(START), found.text(START)) == (ALL, START, "")
    assert "No lag of the aggregator and the shipper is known" in found.why[0]


def test_a_lag_of_the_aggregator_counts_also_if_none_of_the_shipper_is_known() -> None:
    """What it has summed is taken to be in the store; what it has not is not."""
    pipeline = Pipeline()
    pipeline.collect(of=[AGGREGATOR])
    until_ms = pipeline.found().until_ms
    pipeline.now += 10_000
    pipeline.append(0)
    pipeline.collect(of=[AGGREGATOR])
    assert pipeline.found() == Stored(until_ms, (AGGREGATOR,), ("shipper",))
    assert "No lag of the shipper is known" in pipeline.found().why[0]


def test_a_system_with_another_prefix_hides_nothing() -> None:
    """It is one whose aggregator reads no topic that the store names. If the store names none, it may be its own."""
    pipeline, other = Pipeline(1), f"old-{AGGREGATOR}"
    stopped = group(other, (3, 9), topic="old-metrics"), group(f"old-{SHIPPER}", (0, 5), topic="old-metrics-agg")
    pipeline.collect(others=stopped)
    assert pipeline.found() == Stored(None, (other, f"old-{SHIPPER}"))
    tags = {"app": "tallystream", "metric_type": "gauge", "command": "aggregate", "partition": "0"}
    old, own = ({**tags, "topic": topic} for topic in ("old-metrics", "metrics"))
    pipeline.points.append(Point("tallystream.offset", old, {"max": 3}, START - LONGEST_MS - 1))
    assert pipeline.found().until_ms is None
    pipeline.points.append(Point("tallystream.offset", own, {"max": 0}, START - 60_000))
    assert pipeline.found() == Stored(START - 1)
    pipeline.append(0)
    pipeline.collect(others=stopped)
    assert pipeline.found().behind == (AGGREGATOR,)
    pipeline.points.append(Point("tallystream.offset", old, {"max": 3}, START - 60_000))
    assert other in pipeline.found().behind
