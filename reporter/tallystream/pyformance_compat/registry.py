"""All names of pyformance's module `registry`, among them the decorators.

They count, meter and time the calls of a function. The default key is its qualified name and `_calls`.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, overload

from tallystream.metrics.calls import observe_calls
from tallystream.pyformance_compat._registry import (
    MetricsRegistry,
    RegexRegistry,
    clear,
    counter,
    dump_metrics,
    gauge,
    global_registry,
    histogram,
    meter,
    set_global_registry,
    timer,
)
from tallystream.pyformance_compat.meters import CallbackGauge, Counter, Gauge, Histogram, Meter, SimpleGauge, Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Protocol, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])
    Tags = Mapping[str, object] | None

    class Decorator(Protocol):
        """Used as `@decorator` or `@decorator(metric_name=…, registry=…, tags=…)`."""

        @overload
        def __call__(
            self, fn: Function, metric_name: str | None = ..., registry: MetricsRegistry | None = ..., tags: Tags = ...
        ) -> Function: ...
        @overload
        def __call__(
            self,
            fn: None = ...,
            metric_name: str | None = ...,
            registry: MetricsRegistry | None = ...,
            tags: Tags = ...,
        ) -> Callable[[Function], Function]: ...


__all__ = [
    "CallbackGauge",
    "Counter",
    "Gauge",
    "Histogram",
    "Meter",
    "MetricsRegistry",
    "RegexRegistry",
    "SimpleGauge",
    "Timer",
    "clear",
    "count_calls",
    "counter",
    "dump_metrics",
    "gauge",
    "get_qualname",
    "global_registry",
    "hist_calls",
    "histogram",
    "meter",
    "meter_calls",
    "set_global_registry",
    "time_calls",
    "timer",
]


def get_qualname(obj: Any) -> str:
    """Return the qualified name of a function or class, or that of an object's class."""
    return str(getattr(obj, "__qualname__", type(obj).__qualname__))


def _decorator(
    observe: Callable[[MetricsRegistry, str, Tags, str], Iterator[None]],
    result: Callable[[MetricsRegistry, str, Tags, Any], None] = lambda *_: None,
) -> Decorator:
    """Return the decorator that runs each call inside `observe`, and passes what it returns to `result`.

    Both receive the registry, and the key and the tags of the metric; `observe` also receives the function's name.
    """
    around = contextmanager(observe)

    @wraps(observe, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def decorate(
        fn: Any = None, metric_name: str | None = None, registry: MetricsRegistry | None = None, tags: Tags = None
    ) -> Any:
        if fn is None:
            return partial(decorate, metric_name=metric_name, registry=registry, tags=tags)
        function_name = get_qualname(fn)
        key = f"{function_name}_calls" if metric_name is None else metric_name

        def current() -> MetricsRegistry:
            return global_registry() if registry is None else registry

        def passed(returned: Any) -> Any:
            result(current(), key, tags, returned)
            return returned

        return observe_calls(fn, lambda: around(current(), key, tags, function_name), passed)

    del decorate.__wrapped__  # the signature is that of `decorate`
    return decorate


@_decorator
def count_calls(registry: MetricsRegistry, key: str, tags: Tags, _: str) -> Iterator[None]:
    """Count the calls: `@count_calls`, or `@count_calls(metric_name=…, registry=…, tags=…)`."""
    registry.counter(key, tags).inc()
    yield


@_decorator
def meter_calls(registry: MetricsRegistry, key: str, tags: Tags, _: str) -> Iterator[None]:
    """Count the calls and their rate."""
    registry.meter(key, tags).mark()
    yield


def _add_result(registry: MetricsRegistry, key: str, tags: Tags, result: Any) -> None:
    if type(result) in (int, float):
        registry.histogram(key, tags).add(result)


@partial(_decorator, result=_add_result)
def hist_calls(registry: MetricsRegistry, key: str, tags: Tags, _: str) -> Iterator[None]:
    """Add what the function returns to a histogram if it is an int or a float."""
    registry.histogram(key, tags)
    yield


@_decorator
def time_calls(registry: MetricsRegistry, key: str, tags: Tags, name: str) -> Iterator[None]:
    """Time the calls, from the first step of a coroutine or a generator to its end."""
    with registry.timer(key, tags).time(fn=name):
        yield
