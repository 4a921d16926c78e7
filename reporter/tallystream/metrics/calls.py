"""What the decorators share: each call of a function, of whatever kind, inside a context manager."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator
    from contextlib import AbstractContextManager

    Around = Callable[[], AbstractContextManager[object]]

_MAKERS: tuple[Any, ...] = (contextmanager, asynccontextmanager)
_CONTEXT_MANAGERS = {make(print).__code__: make for make in _MAKERS}
"""The two decorators of contextlib, by the code that all functions have which they return."""


def observe_calls(function: Any, around: Around) -> Any:
    """Return a function of the same kind that runs each call inside `around()`.

    A coroutine, a generator, an asynchronous generator, and what `contextlib.contextmanager` makes of one, are inside
    from the first step to the end: the caller's code between the steps is, too. Static and class methods stay such.

    Raises:
        TypeError: it can't be called.
    """
    if isinstance(function, staticmethod | classmethod):
        return type(function)(observe_calls(function.__func__, around))
    if not callable(function):
        raise TypeError(f"{function!r:.100} can't be called; decorate a function, a method or a callable object")
    make = _CONTEXT_MANAGERS.get(getattr(function, "__code__", None))
    if make is not None:
        return make(observe_calls(function.__wrapped__, around))
    return wraps(function)(_wrapper_of(function)(function, around))


def _wrapper_of(function: Any) -> Callable[[Any, Around], Any]:
    import inspect  # imported here because it is slow to import

    while isinstance(function, partial):
        function = function.func
    kinds = (function, type(function).__call__)  # the second one for an object that can be called
    if any(map(inspect.iscoroutinefunction, kinds)):
        return _coroutine
    if any(map(inspect.isasyncgenfunction, kinds)):
        return _async_generator
    return _generator if any(map(inspect.isgeneratorfunction, kinds)) else _function


def _function(function: Any, around: Around) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        with around():
            return function(*args, **kwargs)

    return call


def _coroutine(function: Any, around: Around) -> Any:
    async def run(*args: Any, **kwargs: Any) -> Any:
        with around():
            return await function(*args, **kwargs)

    return run


def _generator(function: Any, around: Around) -> Any:
    def generate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with around():
            return (yield from function(*args, **kwargs))

    return generate


def _async_generator(function: Any, around: Around) -> Any:
    async def generate(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        with around():
            generator = function(*args, **kwargs)
            try:
                value = await anext(generator)
                while True:  # what `yield from` does, which an asynchronous generator can't use
                    try:
                        sent = yield value
                    except GeneratorExit:
                        await generator.aclose()
                        raise
                    except BaseException as error:  # noqa: BLE001 - the caller has thrown it into the generator
                        value = await generator.athrow(error)
                    else:
                        value = await generator.asend(sent)
            except StopAsyncIteration:
                return

    return generate
