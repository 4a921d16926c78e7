"""Decorators that count and time functions and coroutine functions, and count exceptions."""

from __future__ import annotations

import logging
from contextlib import ContextDecorator
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

from tallystream.instrumentation.default import default_registry
from tallystream.log_throttle import RateLimitFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from tallystream.metric_factory import MetricFactory
    from tallystream.metrics.timer import Timer

_P = ParamSpec("_P")
_R = TypeVar("_R")
_F = TypeVar("_F", bound="Callable[..., Any]")

EXCEPTION = "exception"
"""The tag with the name of an exception's class."""

_log = logging.getLogger("tallystream.instrumentation")
_log.addFilter(RateLimitFilter())


def counted(
    name: str, tags: Mapping[str, str] | None = None, *, registry: MetricFactory | None = None
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Count the calls of a function when they end, with those that raise.

        @counted("orders.handled")
        def handle(order): ...

    A call of a coroutine function ends when its coroutine does. `registry` is the default registry if it is None.

    Raises:
        ConfigError, MetricTypeError: the counter can't have this name or these tags.
    """
    counter = (registry or default_registry()).counter(name, tags)

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        from inspect import iscoroutinefunction  # imported here because it is slow to import

        if iscoroutinefunction(function):

            @wraps(function)
            async def counted_async(*args: _P.args, **kwargs: _P.kwargs) -> Any:
                try:
                    return await function(*args, **kwargs)
                finally:
                    counter.inc()

            return cast("Callable[_P, _R]", counted_async)

        @wraps(function)
        def counted_call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return function(*args, **kwargs)
            finally:
                counter.inc()

        return counted_call

    return decorate


def timed(name: str, tags: Mapping[str, str] | None = None, *, registry: MetricFactory | None = None) -> Timer:
    """Time the calls of a function or a coroutine function: the timer of this name, as a decorator.

        @timed("orders.handled")
        async def handle(order): ...

    `registry` is the default registry if it is None.

    Raises:
        ConfigError, MetricTypeError: the timer can't have this name or these tags.
    """
    return (registry or default_registry()).timer(name, tags)


class count_exceptions(ContextDecorator):  # noqa: N801 - it is used as a function
    """Count the exceptions that leave a function, a coroutine function or a `with` block, by class.

        @count_exceptions("orders.failed")
        def handle(order): ...

    The counter has the tag `exception` with the name of the class. The exception continues. If it can't be
    counted, the logger `tallystream.instrumentation` logs why, at most once a minute. `registry` is the default
    registry if it is None.

    Args:
        name: the name of the counter.
        exceptions: which exceptions count. `Exception` includes neither KeyboardInterrupt nor a cancelled task.
        tags: further tags.
        registry: the registry of the counter, or a child of it.
    """

    def __init__(
        self,
        name: str,
        exceptions: type[BaseException] | tuple[type[BaseException], ...] = Exception,
        *,
        tags: Mapping[str, str] | None = None,
        registry: MetricFactory | None = None,
    ) -> None:
        self._name, self._exceptions, self._tags = name, exceptions, dict(tags or {})
        self._registry = registry or default_registry()

    def __call__(self, function: _F) -> _F:
        """Return the function with its exceptions counted."""
        from inspect import iscoroutinefunction

        if not iscoroutinefunction(function):
            return super().__call__(function)

        @wraps(function)
        async def counted_async(*args: Any, **kwargs: Any) -> Any:
            with self:
                return await function(*args, **kwargs)

        return cast("_F", counted_async)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            return
        try:
            if issubclass(kind, self._exceptions):
                self._registry.counter(self._name, {**self._tags, EXCEPTION: kind.__name__}).inc()
        except Exception:  # noqa: BLE001 - the application's exception continues
            _log.exception("an exception can't be counted as %r", self._name)
