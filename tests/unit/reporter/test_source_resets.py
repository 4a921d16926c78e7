"""Counts of sources over resets: of the library, in another stream, and in a forked child."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream import MetricRegistry
from tallystream.bridges.base import Reading
from tallystream.bridges.sources import ResetAdjuster
from tallystream.record import Counter
from tallystream.testing import ManualClock, assert_count

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_reset_is_detected_by_the_start_time() -> None:
    """A count that began after the last reading was reset, even if it is higher; small differences are ignored."""
    adjuster = ResetAdjuster()
    counts = []
    for now, count, began in [(10, 5, 1.0), (20, 6, 1.001), (30, 7, 25.0), (40, 8, 25.0), (50, 8, None), (60, 1, None)]:
        metric = adjuster.adjust(Reading(Counter(name="c", count=count), began), now)
        assert isinstance(metric, Counter)
        counts.append(metric.count)
    assert counts == [5, 6, 13, 14, 14, 15]


class ResetMeanwhile:
    """A source whose counter is reset during the first reading, after its value was read."""

    kind = "library"

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._count, self._began = 100, clock.wall_ms() / 1000

    def read(self) -> Iterator[Reading]:
        """Return the counter. The rest of the reading takes a second."""
        yield Reading(Counter(name="c", count=self._count), self._began)
        self._clock.advance(1)
        if self._count == 100:
            self._count, self._began = 150, self._clock.wall_ms() / 1000
        self._clock.advance(1)


def test_a_reset_during_a_reading_is_detected() -> None:
    """The values before and after it are added, even if the new value is higher."""
    clock = ManualClock()
    registry = MetricRegistry("app", clock=clock)
    clock.advance(60)
    registry.add_source(ResetMeanwhile(clock))
    assert_count(registry, "c", 100)
    assert_count(registry, "c", 250)


@given(st.lists(st.one_of(st.integers(0, 50), st.none(), st.just("reset"))))
def test_reported_counts_never_fall(steps: list[int | str | None]) -> None:
    """With increments, absences and resets in any order, only unread increments are missing."""
    adjuster, raw, expected, before = ResetAdjuster(), 0, 0, 0
    for step in steps:
        if step == "reset":
            raw = 0
        elif isinstance(step, int):
            raw += step
            expected += step
            metric = adjuster.adjust(Reading(Counter(name="c", count=raw)), 0.0)
            # Without `began`, a reset is not detected if the count exceeds its last value again.
            assert isinstance(metric, Counter)
            assert before <= metric.count <= expected
            if "reset" not in steps:
                assert metric.count == expected
            before = metric.count


class Library:
    """A source with one counter, whose values the test sets."""

    kind = "library"

    def __init__(self, count: int, began: float) -> None:
        self.count, self.began = count, began

    def read(self) -> Iterator[Reading]:
        """Return the counter."""
        yield Reading(Counter(name="c", count=self.count), self.began)


@pytest.mark.parametrize(("began", "expected"), [(0.001, 3), (61.0, 8)])
def test_a_child_detects_only_resets_after_the_fork(began: float, expected: int) -> None:
    """A start time that is computed again, with a small difference, does not repeat the parent's counts."""
    clock = ManualClock()
    registry, started = MetricRegistry("app", clock=clock), clock.wall_ms() / 1000
    library = Library(5, started)
    registry.add_source(library)
    clock.advance(60)
    registry.reset_after_fork()
    library.count, library.began = 8, started + began
    clock.advance(60)
    assert_count(registry, "c", expected)
    assert_count(registry, "c", expected)
