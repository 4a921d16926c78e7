"""Decorators that count, meter and time the calls of a function. The default key is its qualified name and `_calls`."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, overload

from tallystream.pyformance_compat._registry import global_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Protocol, TypeVar

    from tallystream.pyformance_compat._registry import MetricsRegistry

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


def get_qualname(obj: Any) -> str:
    """Return the qualified name of a function or class."""
    return str(obj.__qualname__)


def _same(result: Any) -> Any:
    return result


def _decorator(
    observe: Callable[[MetricsRegistry, str, Tags, str], Iterator[Callable[[Any], Any]]],
) -> Decorator:
    """Return the decorator that runs each call inside `observe`, which yields a function that is applied to the result.

    `observe` receives the registry, the key and tags of the metric, and the function's name.
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

        if iscoroutinefunction(fn):

            @wraps(fn)
            async def observed_async(*args: Any, **kwargs: Any) -> Any:
                with around(global_registry() if registry is None else registry, key, tags, function_name) as passed:
                    return passed(await fn(*args, **kwargs))

            return observed_async

        @wraps(fn)
        def observed(*args: Any, **kwargs: Any) -> Any:
            with around(global_registry() if registry is None else registry, key, tags, function_name) as passed:
                return passed(fn(*args, **kwargs))

        return observed

    del decorate.__wrapped__  # the signature is that of `decorate`
    return decorate


@_decorator
def count_calls(registry: MetricsRegistry, key: str, tags: Tags, _: str) -> Iterator[Callable[[Any], Any]]:
    """Count the calls: `@count_calls`, or `@count_calls(metric_name=…, registry=…, tags=…)`."""
    registry.counter(key, tags).inc()
    yield _same


@_decorator
def meter_calls(registry: MetricsRegistry, key: str, tags: Tags, _: str) -> Iterator[Callable[[Any], Any]]:
    """Count the calls and their rate."""
    registry.meter(key, tags).mark()
    yield _same


@_decorator
def hist_calls(registry: MetricsRegistry, key: str, tags: Tags, _: str) -> Iterator[Callable[[Any], Any]]:
    """Add what the function returns to a histogram if it is an int or a float."""
    histogram = registry.histogram(key, tags)

    def add(result: Any) -> Any:
        if type(result) in (int, float):
            histogram.add(result)
        return result

    yield add


@_decorator
def time_calls(registry: MetricsRegistry, key: str, tags: Tags, name: str) -> Iterator[Callable[[Any], Any]]:
    """Time the calls. A coroutine function is timed from its first step to its end."""
    with registry.timer(key, tags).time(fn=name):
        yield _same
