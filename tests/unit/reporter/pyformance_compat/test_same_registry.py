"""Registries, functions, decorators, the signal and module names compared with pyformance."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.pyformances import Clock, both, comparable, ours

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
    """Make the calls, and return every dump with keys and attributes in their order."""
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
            gauge = registry.gauge(rest[0], (lambda: 5) if rest[1] == "callback" else None, default=-1)
            if isinstance(rest[1], int) and hasattr(gauge, "set_value"):
                gauge.set_value(rest[1])
        elif kind == "pass":
            clock.add(rest[0])
        elif kind == "clear":
            registry.clear()
        else:
            clock.add(1.0)
            dump = registry.dump_metrics()
            seen.append([list(dump), *map(list, dump.values())])
            seen.append(comparable([dump, *(registry.get_metrics(key) for key in ("a", "b", "none"))]))
    return seen


@settings(deadline=None)
@given(st.lists(STEPS), st.integers(0, 99))
def test_dumps(steps: list[tuple[Any, ...]], seed: int) -> None:
    """After any calls, dumps have equal keys, attributes and values in equal order."""
    theirs, mine = both(lambda library, clock: play(library.MetricsRegistry(clock), clock, steps), seed)
    assert mine == theirs


@settings(deadline=None)
@given(st.lists(STEPS), st.integers(0, 99))
def test_the_global_registry_and_its_functions(steps: list[tuple[Any, ...]], seed: int) -> None:
    """The functions of the package use the global registry, which can be replaced."""

    def program(library: Any, clock: Clock) -> list[Any]:
        before = library.global_registry()
        mine = library.MetricsRegistry(clock)
        library.set_global_registry(mine)
        try:
            assert library.global_registry() is mine
            assert library.registry.global_registry() is mine

            class Functions:
                counter, histogram, meter = library.counter, library.histogram, library.meter
                timer, clear, dump_metrics = library.timer, library.clear, library.dump_metrics
                get_metrics = mine.get_metrics

                @staticmethod
                def gauge(key: str, gauge: Any, default: float) -> Any:  # noqa: ARG004 - the function has no default
                    return library.gauge(key, gauge)

            return play(Functions, clock, steps)
        finally:
            library.set_global_registry(before)

    theirs, mine = both(program, seed)
    assert mine == theirs


def test_add() -> None:
    """`add` accepts metrics of all classes and subclasses, and rejects existing keys and other objects."""

    def program(library: Any, clock: Clock) -> list[Any]:
        registry = library.MetricsRegistry(clock=clock)

        class Sub(library.meters.Counter):  # type: ignore[misc]
            pass

        registry.add("c", Sub())
        registry.add("h", library.meters.Histogram(size=2, clock=clock))
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
        return [comparable(registry.dump_metrics()), messages, str(refused.value)]

    theirs, mine = both(program)
    assert mine == theirs


@pytest.mark.parametrize("pattern", [None, r"^/api/(?P<model>\w+)/\d+/?(?P<verb>\w+)?$", r"(\w)\d", "^$"])
def test_regex_registries(pattern: str | None) -> None:
    """The groups of the pattern are the key, for all types; an unmatched key becomes ""."""

    def program(library: Any, clock: Clock) -> list[Any]:
        registry = library.registry.RegexRegistry(pattern, clock)
        keys = ["/api/users/1", "/api/users/1/edit", "/api/users/2/edit", "a1b2c3", "", "other"]
        return [
            *play(registry, clock, [("counter", key, "inc") for key in keys]),
            *play(registry, clock, [("timer", key, 2.0) for key in keys]),
            *play(registry, clock, [("meter", key, 2) for key in keys]),
            *play(registry, clock, [("histogram", key, 2) for key in keys]),
            *play(registry, clock, [("gauge", key, 3) for key in keys]),
            registry.pattern.pattern,
        ]

    theirs, mine = both(program)
    assert mine == theirs


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
        return [comparable(seen), Service.work.__doc__, metered.__name__, library.registry.get_qualname(Service)]

    theirs, mine = both(program)
    assert mine == theirs


def test_the_signal_of_a_call_that_took_too_long() -> None:
    """Above the threshold, the timer sends call_too_long with the elapsed time and the arguments of time()."""

    def program(library: Any, clock: Clock) -> list[Any]:
        signals: list[Any] = []

        def receive(sender: Any, **more: Any) -> None:
            signals.append((type(sender).__name__, more))

        with library.call_too_long.connected_to(receive):
            timer = library.meters.Timer(threshold=2, clock=clock)
            for seconds in (1, 2, 3):
                with timer.time(fn="f"):
                    clock.add(seconds)
        return signals

    theirs, mine = both(program)
    assert mine == theirs
    assert mine == [("Timer", {"elapsed": 3, "fn": "f"})]


def test_create_sink() -> None:
    """A subclass's create_sink is called for each timer."""

    def program(library: Any, clock: Clock) -> list[Any]:
        durations: list[float] = []

        class Sink:
            def add(self, seconds: float) -> None:
                durations.append(seconds)

        class Registry(library.MetricsRegistry):  # type: ignore[misc]
            def create_sink(self) -> Sink:
                return Sink()

        registry = Registry(clock)
        with registry.timer("t").time():
            clock.add(2)
        return [durations, registry.timer("t").sink.__class__.__name__]

    theirs, mine = both(program)
    assert mine == theirs
    assert mine == [[2], "Sink"]


PACKAGES = ["", "meters", "stats", "reporters"]
MODULES = ["registry"]
REPORTERS = {"CsvReporter", "HostedGraphiteReporter", "NewRelicReporter", "OpenTSDBReporter"}
REPORTERS |= {"SysLogReporter", "UdpCarbonReporter"}
ABSENT = {*REPORTERS, "ExpWeightedMovingAvg"}


@pytest.mark.parametrize("name", PACKAGES + MODULES)
def test_module_names(name: str) -> None:
    """The modules of the types and the registry exist, with the same public classes, functions and methods."""
    suffix = f".{name}" if name else ""
    theirs = importlib.import_module(f"pyformance{suffix}")
    mine = importlib.import_module(f"{ours.__name__}{suffix}")
    for public, thing in vars(theirs).items():
        home = getattr(thing, "__module__", "")
        offered = home.startswith("pyformance") if name in PACKAGES else home == theirs.__name__
        if public.startswith("_") or public in ABSENT or not offered:
            continue
        found = getattr(mine, public)
        if isinstance(thing, type):
            methods = {method for method in vars(thing) if not method.startswith("_") and not method.isupper()}
            assert {method for method in methods if not hasattr(found, method)} == set()


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    """Modules with names that are imported on first use refuse all others."""
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ours.nothing  # noqa: B018 - the access itself is tested
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ours.meters.nothing  # noqa: B018
