"""Decorators that count and time calls and count exceptions, and a handler that counts log records."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tallystream.instrumentation.default import default_registry
from tallystream.log_throttle import RateLimitFilter
from tallystream.metrics.calls import observe_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from tallystream.metric_factory import MetricFactory
    from tallystream.metrics.timer import Timer

_F = TypeVar("_F", bound="Callable[..., Any]")

EXCEPTION = "exception"
"""The tag with the name of an exception's class."""

_log = logging.getLogger("tallystream.instrumentation")
_log.addFilter(RateLimitFilter())


def counted(
    name: str, tags: Mapping[str, str] | None = None, *, registry: MetricFactory | None = None
) -> Callable[[_F], _F]:
    """Count the calls of a function when they end, with those that raise.

        @counted("orders.handled")
        def handle(order): ...

    A call of a coroutine function ends when its coroutine does, one of a generator function when its generator does.
    `registry` is the default registry if it is None.

    Raises:
        ConfigError, MetricTypeError: the counter can't have this name or these tags.
    """
    counting = _AtEnd((registry or default_registry()).counter(name, tags).inc)
    return lambda function: observe_calls(function, lambda: counting)


class _AtEnd:
    """A context manager that calls a function at the end of each block."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._function()


def timed(name: str, tags: Mapping[str, str] | None = None, *, registry: MetricFactory | None = None) -> Timer:
    """Time the calls of a function from the first step to the end: the timer of this name, as a decorator.

        @timed("orders.handled")
        async def handle(order): ...

    `registry` is the default registry if it is None.

    Raises:
        ConfigError, MetricTypeError: the timer can't have this name or these tags.
    """
    return (registry or default_registry()).timer(name, tags)


class count_exceptions:  # noqa: N801 - it is used as a function
    """Count the exceptions that leave a function, a coroutine, a generator or a `with` block, by class.

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
        observed: _F = observe_calls(function, lambda: self)
        return observed

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


class LogRecordCounter(logging.Handler):
    """Counts the log records that reach it: `logging.getLogger().addHandler(LogRecordCounter())`.

    Args:
        registry: the registry of the counters, or a child of it; the default registry if it is None.
        name: the name of the counters. They have the tag `level`, such as `error`.
        level: the lowest level that is counted.
    """

    def __init__(
        self, registry: MetricFactory | None = None, *, name: str = "log.records", level: int | str = logging.NOTSET
    ) -> None:
        super().__init__(level)
        self._registry = registry or default_registry()
        self._counter_name = name

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record. An error does not reach the code that logs: see `logging.Handler.handleError`."""
        try:
            self._registry.counter(self._counter_name, {"level": record.levelname.lower()}).inc()
        except Exception:  # noqa: BLE001 - as the handlers of Python's logging do
            self.handleError(record)
