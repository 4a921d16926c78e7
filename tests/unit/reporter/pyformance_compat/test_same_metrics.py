"""The metric classes compared with pyformance: equal calls at equal times have equal results."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.pyformances import Clock, both, comparable, ours, real

FINITE = st.one_of(st.integers(-(2**31) + 2, 2**31 - 2), st.floats(-1e6, 1e6), st.sampled_from([0, 1, 2.5]))
NOT_NEGATIVE = st.one_of(st.integers(0, 1000), st.floats(0, 1e6))
PASSING = st.sampled_from([0, 0.5, 1, 4.999, 5, 5.001, 60, 700])


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["inc", "dec"]), st.tuples(FINITE)),
            st.tuples(st.sampled_from(["inc", "dec", "clear"]), st.just(())),
        )
    )
)
def test_counters(calls: list[tuple[str, tuple[Any, ...]]]) -> None:
    """Increments, decrements and clears with ints and floats give equal values of equal types."""

    def program(library: Any, _: Clock) -> list[str]:
        counter = library.meters.Counter()
        return [
            repr((getattr(counter, method)(*arguments), counter.get_count(), type(counter.get_count())))
            for method, arguments in calls
        ]

    theirs, mine = both(program)
    assert mine == theirs


def see_histogram(it: Any) -> list[Any]:
    """Return all statistics of a histogram or timer."""
    kept = it.get_snapshot()
    found = [
        *(getattr(it, f"get_{what}")() for what in ("count", "sum", "max", "min", "mean", "stddev", "var")),
        kept.get_size(),
        kept.values,
        kept.get_median(),
        *(getattr(kept, f"get_{share}th_percentile")() for share in (75, 95, 99, 999)),
    ]
    # Variances are computed in different orders, so the last digits of large values differ.
    largest = max(map(abs, kept.values), default=0)
    return [comparable(0.0 if isinstance(value, float) and abs(value) < largest * 1e-6 else value) for value in found]


@settings(deadline=None)
@given(
    st.lists(st.one_of(FINITE, st.none(), st.tuples(st.sampled_from([1, 60, 1800, 3600, 4000]))), max_size=40),
    st.sampled_from([{}, {"size": 0}, {"alpha": 0.0}]),
)
def test_histograms(steps: list[Any], options: dict[str, Any]) -> None:
    """Adding (a number), clearing (None), time passing (a tuple): the same statistics and the same sample at each step.

    Left out: a mean of exactly -1, after which pyformance's variance is wrong, and a pause so long that weights vanish.
    """
    assume(sum(step[0] for step in steps if isinstance(step, tuple)) < 40_000)

    def program(library: Any, clock: Clock) -> list[Any]:
        histogram = library.meters.Histogram(clock=clock, **options)
        seen = []
        for step in steps:
            if step is None:
                histogram.clear()
            elif isinstance(step, tuple):
                clock.add(step[0])
            else:
                histogram.add(step)
                assume(library is ours or histogram.var[0] != -1)
            seen.append(see_histogram(histogram))
        return seen

    theirs, mine = both(program)
    assert mine == theirs


def test_after_a_long_pause_one_old_value_is_kept() -> None:
    """When all earlier values have lost their weight, the newest of them stays."""

    def program(library: Any, clock: Clock) -> list[Any]:
        histogram = library.meters.Histogram(size=10, clock=clock)
        for value in range(1000, 1010):
            histogram.add(value)
        clock.add(15 * 3600)
        histogram.add(2000)
        return list(histogram.get_snapshot().values)

    theirs, mine = both(program)
    assert mine == theirs == [1009, 2000]


@pytest.mark.parametrize("alpha", [0.015, 0.99])
def test_the_decaying_sample_prefers_recent_values(alpha: float) -> None:
    """It has `size` values, few of which are old."""
    random.seed(1)
    clock = Clock()
    sample = ours.stats.ExpDecayingSample(size=100, alpha=alpha, clock=clock)
    for value in range(1000):
        sample.update(value)
        clock.add(1)
    kept = sample.get_snapshot().values
    assert len(kept) == sample.get_size() == 100
    assert sum(kept) / 100 > 900


@settings(deadline=None)
@given(st.lists(st.one_of(NOT_NEGATIVE, st.none(), st.tuples(PASSING))))
def test_meters(steps: list[Any]) -> None:
    """Marking, clearing and time passing: the same count, and the same mean rate of integers.

    The mean rate is left out when no time has passed, which is a ZeroDivisionError in pyformance.
    """

    def program(library: Any, clock: Clock) -> list[Any]:
        meter = library.meters.Meter(clock=clock)
        started, fractions = clock.now, False
        seen: list[Any] = []
        for step in steps:
            if step is None:
                meter.clear()
                started, fractions = clock.now, False
            elif isinstance(step, tuple):
                clock.add(step[0])
            else:
                meter.mark(step)
                fractions = fractions or isinstance(step, float)
            seen.append([meter.get_count(), meter.get_mean_rate() if clock.now > started and not fractions else None])
        return seen

    theirs, mine = both(program)
    assert comparable(mine) == comparable(theirs)


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=20))
def test_weighted_rates_that_are_read_every_five_seconds(marks: list[int]) -> None:
    """The real pyformance ticks when a rate is read, Tallystream every five seconds, with the same formula."""

    def program(library: Any, clock: Clock) -> list[Any]:
        meter = library.meters.Meter(clock=clock)
        seen = []
        for number in marks:
            meter.mark(number)
            clock.add(5)
            meter.tick()
            seen.append([meter.get_one_minute_rate(), meter.get_five_minute_rate(), meter.get_fifteen_minute_rate()])
        return seen

    theirs, mine = both(program)
    assert comparable(mine) == comparable(theirs)


@settings(deadline=None)
@given(st.lists(st.one_of(st.tuples(PASSING), st.just("stop"), st.just("clear"), st.just("fail"), st.just("back"))))
def test_timers(steps: list[Any]) -> None:
    """`with`, `stop`, code that raises, a clock that is set back, a sink: equal statistics and mean rates."""

    def program(library: Any, clock: Clock) -> list[Any]:
        durations: list[float] = []

        class Sink:
            def add(self, seconds: float) -> None:
                durations.append(seconds)

        timer = library.meters.Timer(clock=clock, sink=Sink())
        clock.add(1)
        seen: list[Any] = []
        for step in steps:
            if step == "clear":
                timer.clear()
                clock.add(1)
            elif step == "stop":
                context = timer.time("anything", at="all")
                clock.add(2)
                seen.append(context.stop())
            elif step == "fail":
                with suppress(KeyError), timer.time():
                    clock.add(3)
                    raise KeyError
            elif step == "back":
                context = timer.time()
                clock.add(-0.25)
                seen.append(context.stop())
                clock.add(0.5)
            else:
                with timer.time():
                    clock.add(step[0])
            seen += [see_histogram(timer), timer.get_mean_rate(), list(durations)]
        return seen

    theirs, mine = both(program)
    assert comparable(mine) == comparable(theirs)


def test_gauges() -> None:
    """A base class without a value, a callback, a value that is set, and a subclass."""

    def program(library: Any, clock: Clock) -> list[str]:
        class Own(library.meters.Gauge):  # type: ignore[misc]
            def get_value(self) -> float:
                return clock.time()

        with pytest.raises(NotImplementedError):
            library.meters.Gauge().get_value()
        simple, given = library.meters.SimpleGauge(), library.meters.SimpleGauge(value=3)
        callback = library.meters.CallbackGauge(callback=lambda: clock.now)
        values = [simple.get_value(), given.get_value(), callback.get_value(), Own().get_value()]
        simple.set_value("text")
        clock.add(1)
        return list(map(repr, [*values, simple.get_value(), callback.get_value(), callback.callback()]))

    theirs, mine = both(program)
    assert mine == theirs


@settings(deadline=None)
@given(st.lists(FINITE), st.floats(0, 1))
def test_snapshots(values: list[float], share: float) -> None:
    """Equal percentiles for any values."""
    theirs, mine = real.stats.Snapshot(values), ours.stats.Snapshot(iter(values))
    assert repr(mine.get_percentile(share)) == repr(theirs.get_percentile(share))
    assert (mine.values, mine.get_size()) == (theirs.values, theirs.get_size())


@pytest.mark.parametrize("share", [-0.1, 1.1, float("inf")])
def test_an_invalid_share_raises_the_same_error(share: float) -> None:
    """ValueError with the same message."""
    messages = []
    for library in (real, ours):
        with pytest.raises(ValueError, match="is not in") as caught:
            library.stats.Snapshot([1]).get_percentile(share)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@settings(deadline=None)
@given(st.lists(st.one_of(FINITE, st.tuples(PASSING), st.none(), st.just("see"))))
def test_sliding_windows(steps: list[Any]) -> None:
    """Equal values in a time window."""

    def program(library: Any, clock: Clock) -> list[str]:
        sample = getattr(library.stats, "samples", library.stats).SlidingTimeWindowSample(window=60, clock=clock)
        seen = []
        for step in steps:
            if step is None:
                sample.clear()
            elif isinstance(step, tuple):
                clock.add(step[0])
            elif step == "see":
                seen.append(repr([float(value) + 0.0 for value in sample.get_snapshot().values]))
            else:
                sample.update(step)
        return seen

    theirs, mine = both(program)
    assert mine == theirs


def test_a_histogram_accepts_another_sample() -> None:
    """A sliding window instead of the decaying sample, for histogram and timer."""

    def program(library: Any, clock: Clock) -> list[Any]:
        window = getattr(library.stats, "samples", library.stats).SlidingTimeWindowSample
        histogram = library.meters.Histogram(sample=window(10, clock))
        timer = library.meters.Timer(None, 5, 0.1, clock, None, window(clock=clock))
        for value in range(30):
            histogram.add(value)
            with timer.time():
                clock.add(1)
        return [histogram.get_snapshot().values, timer.get_snapshot().values]

    theirs, mine = both(program)
    assert mine == theirs
    assert mine[0] == list(range(20, 30))
