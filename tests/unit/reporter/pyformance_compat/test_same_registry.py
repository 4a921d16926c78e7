"""Registries, functions, decorators and names compared with pyformance."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.pyformances import Clock, ours, same

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

        @library.hist_calls
        def named(text: Any) -> Any:
            return text

        try:
            for _ in range(2):
                library.set_global_registry(library.MetricsRegistry(clock))
                service = Service()
                seen.append([service.work(2.0), service.work(3.0), metered("x"), named("no number"), named(True)])
                with pytest.raises(KeyError):
                    service.work(1.0, fail=True)
                seen.append(library.dump_metrics())
        finally:
            library.set_global_registry(before)
        return [seen, Service.work.__doc__, metered.__name__]

    same(program)


ABSENT = {
    *("CsvReporter", "HostedGraphiteReporter", "NewRelicReporter", "OpenTSDBReporter", "SysLogReporter"),
    *("UdpCarbonReporter", "ExpWeightedMovingAvg", "SlidingTimeWindowSample", "create_sink", "create_thread"),
    "get_qualname",
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
