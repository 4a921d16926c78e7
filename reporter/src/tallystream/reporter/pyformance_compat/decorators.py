"""Decorators that count, meter and time the calls of a function, by its qualified name and `_calls`."""

from __future__ import annotations

from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, overload

from tallystream.reporter.pyformance_compat._global import global_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from tallystream.reporter.pyformance_compat._metrics_registry import MetricsRegistry
    from tallystream.reporter.pyformance_compat.meters.histogram import Histogram

    _F = TypeVar("_F", bound=Callable[..., Any])
    _Tags = Mapping[str, object] | None


def get_qualname(obj: Any) -> str:
    """Return the qualified name of a function or class."""
    return str(obj.__qualname__)


class _Asked:
    """Which metric a decorator feeds; the global registry is the one of the moment of each call."""

    def __init__(self, fn: Any, metric_name: str | None, registry: MetricsRegistry | None, tags: _Tags) -> None:
        self.function_name = get_qualname(fn)
        self.name = f"{self.function_name}_calls" if metric_name is None else metric_name
        self._registry, self.tags = registry, tags

    @property
    def registry(self) -> MetricsRegistry:
        return global_registry() if self._registry is None else self._registry


@overload
def count_calls(
    fn: _F, metric_name: str | None = ..., registry: MetricsRegistry | None = ..., tags: _Tags = ...
) -> _F: ...
@overload
def count_calls(
    fn: None = ..., metric_name: str | None = ..., registry: MetricsRegistry | None = ..., tags: _Tags = ...
) -> Callable[[_F], _F]: ...
def count_calls(
    fn: Any = None, metric_name: str | None = None, registry: MetricsRegistry | None = None, tags: _Tags = None
) -> Any:
    """Count the calls: `@count_calls`, or `@count_calls(metric_name=…, registry=…, tags=…)`."""
    if fn is None:
        return partial(count_calls, metric_name=metric_name, registry=registry, tags=tags)
    asked = _Asked(fn, metric_name, registry, tags)

    if iscoroutinefunction(fn):

        @wraps(fn)
        async def counted_async(*args: Any, **kwargs: Any) -> Any:
            asked.registry.counter(asked.name, asked.tags).inc()
            return await fn(*args, **kwargs)

        return counted_async

    @wraps(fn)
    def counted(*args: Any, **kwargs: Any) -> Any:
        asked.registry.counter(asked.name, asked.tags).inc()
        return fn(*args, **kwargs)

    return counted


@overload
def meter_calls(
    fn: _F, metric_name: str | None = ..., registry: MetricsRegistry | None = ..., tags: _Tags = ...
) -> _F: ...
@overload
def meter_calls(
    fn: None = ..., metric_name: str | None = ..., registry: MetricsRegistry | None = ..., tags: _Tags = ...
) -> Callable[[_F], _F]: ...
def meter_calls(
    fn: Any = None, metric_name: str | None = None, registry: MetricsRegistry | None = None, tags: _Tags = None
) -> Any:
    """Meter the calls: how many, and how fast they come."""
    if fn is None:
        return partial(meter_calls, metric_name=metric_name, registry=registry, tags=tags)
    asked = _Asked(fn, metric_name, registry, tags)

    if iscoroutinefunction(fn):

        @wraps(fn)
        async def metered_async(*args: Any, **kwargs: Any) -> Any:
            asked.registry.meter(asked.name, asked.tags).mark()
            return await fn(*args, **kwargs)

        return metered_async

    @wraps(fn)
    def metered(*args: Any, **kwargs: Any) -> Any:
        asked.registry.meter(asked.name, asked.tags).mark()
        return fn(*args, **kwargs)

    return metered


@overload
def hist_calls(
    fn: _F, metric_name: str | None = ..., registry: MetricsRegistry | None = ..., tags: _Tags = ...
) -> _F: ...
@overload
def hist_calls(
    fn: None = ..., metric_name: str | None = ..., registry: MetricsRegistry | None = ..., tags: _Tags = ...
) -> Callable[[_F], _F]: ...
def hist_calls(
    fn: Any = None, metric_name: str | None = None, registry: MetricsRegistry | None = None, tags: _Tags = None
) -> Any:
    """Take what the function returns into a histogram, where it is an int or a float; of a coroutine, its result."""
    if fn is None:
        return partial(hist_calls, metric_name=metric_name, registry=registry, tags=tags)
    asked = _Asked(fn, metric_name, registry, tags)

    def take(histogram: Histogram, result: Any) -> Any:
        if type(result) in (int, float):
            histogram.add(result)
        return result

    if iscoroutinefunction(fn):

        @wraps(fn)
        async def taken_async(*args: Any, **kwargs: Any) -> Any:
            return take(asked.registry.histogram(asked.name, asked.tags), await fn(*args, **kwargs))

        return taken_async

    @wraps(fn)
    def taken(*args: Any, **kwargs: Any) -> Any:
        return take(asked.registry.histogram(asked.name, asked.tags), fn(*args, **kwargs))

    return taken


@overload
def time_calls(
    fn: _F, metric_name: str | None = ..., registry: MetricsRegistry | None = ..., tags: _Tags = ...
) -> _F: ...
@overload
def time_calls(
    fn: None = ..., metric_name: str | None = ..., registry: MetricsRegistry | None = ..., tags: _Tags = ...
) -> Callable[[_F], _F]: ...
def time_calls(
    fn: Any = None, metric_name: str | None = None, registry: MetricsRegistry | None = None, tags: _Tags = None
) -> Any:
    """Time the calls; of a coroutine function, from its first step to its end."""
    if fn is None:
        return partial(time_calls, metric_name=metric_name, registry=registry, tags=tags)
    asked = _Asked(fn, metric_name, registry, tags)

    if iscoroutinefunction(fn):

        @wraps(fn)
        async def timed_async(*args: Any, **kwargs: Any) -> Any:
            with asked.registry.timer(asked.name, asked.tags).time(fn=asked.function_name):
                return await fn(*args, **kwargs)

        return timed_async

    @wraps(fn)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with asked.registry.timer(asked.name, asked.tags).time(fn=asked.function_name):
            return fn(*args, **kwargs)

    return timed
