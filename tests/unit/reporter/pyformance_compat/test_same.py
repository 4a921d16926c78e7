"""The types, registries, functions, decorators and names compared with pyformance: equal calls, equal results."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.pyformances import Clock, ours, real, same

FINITE = st.one_of(st.integers(-(2**31) + 2, 2**31 - 2), st.floats(-1e6, 1e6), st.sampled_from([0, 1, 2.5]))
PASSING = st.sampled_from([0, 0.5, 1, 4.999, 5, 5.001, 60, 700])


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


KEYS = st.sampled_from(["a", "b", "c.d"])
STEPS = st.one_of(
    st.tuples(st.just("counter"), KEYS, st.sampled_from(["inc", "dec", "clear"])),
    st.tuples(st.just("histogram"), KEYS, st.integers(0, 1000)),
    st.tuples(st.just("meter"), KEYS, st.integers(0, 1000)),
    st.tuples(st.just("timer"), KEYS, st.sampled_from([0.0, 0.25, 7.0])),
    st.tuples(st.just("gauge"), KEYS, st.one_of(st.none(), st.integers(), st.just("callback"))),
    st.tuples(st.just("pass"), st.sampled_from([0.5, 5.0, 90.0])),
    st.just(("clear",)),
    st.just(("dump",)),
)


def play(registry: Any, clock: Clock, steps: list[tuple[Any, ...]]) -> list[Any]:
    """Make the calls, and return every dump."""
    seen: list[Any] = []
    for kind, *rest in [*steps, ("dump",)]:
        # Time passes first, since the mean rate of no time is an error in pyformance.
        clock.add(1.0)
        if kind == "counter":
            getattr(registry.counter(rest[0]), rest[1])()
        elif kind == "histogram":
            registry.histogram(rest[0]).add(rest[1])
        elif kind == "meter":
            registry.meter(rest[0]).mark(rest[1])
        elif kind == "timer":
            with registry.timer(rest[0]).time():
                clock.add(rest[1])
        elif kind == "gauge":
            gauge = registry.gauge(rest[0], (lambda: 5) if rest[1] == "callback" else None)
            if isinstance(rest[1], int) and hasattr(gauge, "set_value"):
                gauge.set_value(rest[1])
        elif kind == "pass":
            clock.add(rest[0])
        elif kind == "clear":
            registry.clear()
        else:
            clock.add(1.0)
            dump = registry.dump_metrics()
            seen += [list(dump), dump]
    return seen


@settings(deadline=None)
@given(st.lists(STEPS), st.integers(0, 99))
def test_the_global_registry_and_its_functions(steps: list[tuple[Any, ...]], seed: int) -> None:
    """After any calls of the package's functions, dumps have equal keys, attributes and values.

    They use the global registry, which can be replaced.
    """

    def program(library: Any, clock: Clock) -> list[Any]:
        before = library.global_registry()
        mine = library.MetricsRegistry(clock)
        library.set_global_registry(mine)
        try:
            assert library.global_registry() is mine
            seen = play(library, clock, steps)
            return [*seen, mine.dump_metrics(), *(mine.get_metrics(key) for key in ("a", "b", "none"))]
        finally:
            library.set_global_registry(before)

    same(program, seed)


def test_add() -> None:
    """`add` accepts metrics of all classes and subclasses, and rejects existing keys and other objects."""

    def program(library: Any, clock: Clock) -> list[Any]:
        registry = library.MetricsRegistry(clock=clock)

        class Sub(library.meters.Counter):  # type: ignore[misc]
            pass

        registry.add("c", Sub())
        registry.add("h", library.meters.Histogram(size=5, clock=clock))
        registry.add("m", library.meters.Meter(clock=clock))
        registry.add("t", library.meters.Timer(clock=clock))
        registry.add("g", library.meters.SimpleGauge(4))
        assert isinstance(registry.counter("c"), Sub)
        for value in range(5):
            registry.histogram("h").add(value)
        messages = []
        for key, metric, error in (
            ("c", library.meters.Counter(), LookupError),
            ("g", library.meters.CallbackGauge(int), LookupError),
            ("x", object(), TypeError),
        ):
            with pytest.raises(error) as caught:
                registry.add(key, metric)
            messages.append(str(caught.value))
        with pytest.raises(TypeError) as refused:
            registry.gauge("y", gauge=17)
        return [registry.dump_metrics(), registry.gauge("z", default=3).get_value(), messages, str(refused.value)]

    same(program)


@pytest.mark.parametrize("pattern", [None, r"^/api/(?P<model>\w+)/\d+/?(?P<verb>\w+)?$", r"(\w)\d", "^$"])
def test_regex_registries(pattern: str | None) -> None:
    """The groups of the pattern are the key, for all types; an unmatched key becomes ""."""

    def program(library: Any, clock: Clock) -> list[Any]:
        registry = library.registry.RegexRegistry(pattern, clock)
        keys = ["/api/users/1", "/api/users/1/edit", "/api/users/2/edit", "a1b2c3", "", "other"]
        kinds = [("counter", "inc"), ("timer", 2.0), ("meter", 2), ("histogram", 2), ("gauge", 3)]
        return [*play(registry, clock, [(kind, key, value) for kind, value in kinds for key in keys])]

    same(program)


def test_decorators() -> None:
    """They count, meter and time functions and methods, and pass results and exceptions on."""

    def program(library: Any, clock: Clock) -> list[Any]:
        before = library.global_registry()
        seen: list[Any] = []

        class Service:
            @library.count_calls
            @library.time_calls
            def work(self, seconds: float, *, fail: bool = False) -> float:
                """Work."""
                clock.add(seconds)
                if fail:
                    raise KeyError
                return seconds

        @library.meter_calls
        def metered(text: str) -> str:
            return text

        try:
            for _ in range(2):
                library.set_global_registry(library.MetricsRegistry(clock))
                service = Service()
                seen.append([service.work(2.0), service.work(3.0), metered("x")])
                with pytest.raises(KeyError):
                    service.work(1.0, fail=True)
                seen.append(library.dump_metrics())
        finally:
            library.set_global_registry(before)
        return [seen, Service.work.__doc__, metered.__name__]

    same(program)


ABSENT = {
    *("CsvReporter", "HostedGraphiteReporter", "InfluxReporter", "NewRelicReporter", "OpenTSDBReporter"),
    *("SysLogReporter", "UdpCarbonReporter", "ExpWeightedMovingAvg", "SlidingTimeWindowSample", "create_sink"),
    *("create_thread", "get_qualname", "hist_calls"),
}


@pytest.mark.parametrize("name", ["", ".meters", ".stats", ".reporters", ".registry"])
def test_the_names_of_pyformance(name: str) -> None:
    """A program that changes one import finds the same classes, functions and methods, except those of ABSENT."""
    theirs = importlib.import_module(f"pyformance{name}")
    mine = importlib.import_module(f"{ours.__name__}{name}")
    for public, thing in vars(theirs).items():
        offered = getattr(thing, "__module__", "").startswith("pyformance")
        if public.startswith("_") or public in ABSENT or not offered:
            continue
        found = getattr(mine, public)
        if isinstance(thing, type):
            methods = {method for method in vars(thing) if not method.startswith("_") and not method.isupper()}
            assert {method for method in methods - ABSENT if not hasattr(found, method)} == set()
