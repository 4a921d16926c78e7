"""The metric classes compared with pyformance: equal calls at equal times have equal results."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.pyformances import Clock, ours, real, same

FINITE = st.one_of(st.integers(-(2**31) + 2, 2**31 - 2), st.floats(-1e6, 1e6), st.sampled_from([0, 1, 2.5]))
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
    """Increments, decrements and clears with ints and floats give equal values."""

    def program(library: Any, _: Clock) -> list[Any]:
        counter = library.meters.Counter()
        return [(getattr(counter, method)(*arguments), counter.get_count()) for method, arguments in calls]

    same(program)


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
    return [0.0 if isinstance(value, float) and abs(value) < largest * 1e-6 else value for value in found]


@settings(deadline=None)
@given(
    st.lists(st.one_of(FINITE, st.none(), st.tuples(st.sampled_from([1, 60, 1800, 3600, 4000]))), max_size=40),
    st.sampled_from([{}, {"alpha": 0.0}]),
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

    same(program)


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(0, 1000), st.just(3.0), st.none(), st.tuples(PASSING))))
def test_meters(steps: list[Any]) -> None:
    """Marking whole numbers, clearing and time passing: the same count and the same mean rate.

    The mean rate is left out when no time has passed, which is a ZeroDivisionError in pyformance.
    """

    def program(library: Any, clock: Clock) -> list[Any]:
        meter = library.meters.Meter(clock=clock)
        started = clock.now
        seen: list[Any] = []
        for step in steps:
            if step is None:
                meter.clear()
                started = clock.now
            elif isinstance(step, tuple):
                clock.add(step[0])
            else:
                meter.mark(step)
            seen.append([meter.get_count(), meter.get_mean_rate() if clock.now > started else None])
        return seen

    same(program)


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

    same(program)


@settings(deadline=None)
@given(st.lists(st.one_of(st.tuples(PASSING), st.sampled_from(["stop", "clear", "fail", "back"]))))
def test_timers(steps: list[Any]) -> None:
    """`with`, `stop`, code that raises, a clock that is set back: equal statistics and mean rates."""

    def program(library: Any, clock: Clock) -> list[Any]:
        timer = library.meters.Timer(clock=clock)
        clock.add(1)
        seen: list[Any] = []
        for step in steps:
            if step == "clear":
                timer.clear()
                clock.add(1)
            elif step == "stop":
                context = timer.time()
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
            seen += [see_histogram(timer), timer.get_mean_rate()]
        return seen

    same(program)


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

    same(program)


@settings(deadline=None)
@given(st.lists(FINITE), st.one_of(st.floats(0, 1), st.sampled_from([-0.1, 1.1, float("inf")])))
def test_snapshots(values: list[float], share: float) -> None:
    """Equal percentiles of any values, and the same error for a share that is not from 0 to 1."""
    found = []
    for snapshot in (real.stats.Snapshot(values), ours.stats.Snapshot(iter(values))):
        try:
            found.append(repr(snapshot.get_percentile(share)))
        except ValueError as error:
            found.append(str(error))
        assert (snapshot.values, snapshot.get_size()) == (sorted(values), len(values))
    assert found[0] == found[1]
