"""Decorators on everything that can be called: the whole call is measured, and every exception counts."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tallystream import MetricRegistry, count_exceptions, counted, pyformance_compat, timed
from tallystream.testing import ManualClock


class _Work:
    """Calls of every kind that each take two seconds of the clock, in two steps, and then raise if they should."""

    def __init__(self, clock: ManualClock, *, fails: bool) -> None:
        self._clock, self._fails = clock, fails

    def step(self) -> None:
        """Work for a second."""
        self._clock.advance(1)

    def end(self) -> str:
        """Work for a second; then raise or return."""
        self.step()
        if self._fails:
            raise ValueError
        return "done"

    async def _work(self) -> str:
        self.step()
        await asyncio.sleep(0)
        return self.end()

    def _steps(self) -> Iterator[int]:
        self.step()
        yield 1
        self.end()

    async def _steps_later(self) -> AsyncIterator[int]:
        self.step()
        yield 1
        self.end()

    def _enter(self, context: Callable[[], contextlib.AbstractContextManager[int]]) -> None:
        with context() as number:
            assert number == 1

    def function(self, decorate: Any) -> None:
        @decorate
        def work() -> str:
            self.step()
            return self.end()

        assert work() == "done"

    def coroutine(self, decorate: Any) -> None:
        work = decorate(self._work)
        assert inspect.iscoroutinefunction(work)
        assert asyncio.run(work()) == "done"

    def partial_coroutine(self, decorate: Any) -> None:
        assert asyncio.run(decorate(functools.partial(_Work._work, self))()) == "done"

    def generator(self, decorate: Any) -> None:
        work = decorate(self._steps)
        assert inspect.isgeneratorfunction(work)
        assert list(work()) == [1]

    def asynchronous_generator(self, decorate: Any) -> None:
        work = decorate(self._steps_later)

        async def drain() -> list[int]:
            return [number async for number in work()]

        assert inspect.isasyncgenfunction(work)
        assert asyncio.run(drain()) == [1]

    def below_contextmanager(self, decorate: Any) -> None:
        self._enter(contextlib.contextmanager(decorate(self._steps)))

    def above_contextmanager(self, decorate: Any) -> None:
        self._enter(decorate(contextlib.contextmanager(self._steps)))

    def above_asynccontextmanager(self, decorate: Any) -> None:
        work = decorate(contextlib.asynccontextmanager(self._steps_later))

        async def enter() -> None:
            async with work() as number:
                assert number == 1

        asyncio.run(enter())

    def callable_object(self, decorate: Any) -> None:
        outer = self

        class Callable:
            async def __call__(self) -> str:
                return await outer._work()

        assert asyncio.run(decorate(Callable())()) == "done"

    def methods(self, decorate: Any) -> None:
        outer = self

        class Holder:
            @decorate
            @staticmethod
            async def static() -> str:
                outer.step()
                return outer.end()

        assert asyncio.run(Holder.static()) == "done"


KINDS = [name for name, value in vars(_Work).items() if not name.startswith("_") and name not in ("step", "end")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fails", [False, True])
def test_the_whole_call_is_measured(kind: str, fails: bool) -> None:
    """One call takes its two seconds, and counts once; if it raises at its end, the exception counts and continues."""
    clock = ManualClock()
    registry = MetricRegistry("app", clock=clock)
    seconds: Any = SimpleNamespace(time=clock.monotonic)
    before, theirs = pyformance_compat.global_registry(), pyformance_compat.MetricsRegistry(seconds)

    def decorate(function: Any) -> Any:
        observed = count_exceptions("failed", registry=registry)(timed("time", registry=registry)(function))
        observed = counted("calls", registry=registry)(observed)
        return pyformance_compat.time_calls(observed)

    pyformance_compat.set_global_registry(theirs)
    try:
        with pytest.raises(ValueError, match=r"^$") if fails else contextlib.nullcontext():
            getattr(_Work(clock, fails=fails), kind)(decorate)
    finally:
        pyformance_compat.set_global_registry(before)
    assert registry.timer("time").collect(views=False).sum == 2
    assert registry.counter("calls").count == registry.timer("time").count == 1
    assert registry.counter("failed", {"exception": "ValueError"}).count == fails
    assert [(timed["count"], timed["sum"]) for timed in theirs.dump_metrics().values()] == [(1, 2)]


def test_a_generator_gets_what_is_sent_and_thrown_into_it() -> None:
    """The decorated generators forward values, exceptions and the end, as `yield from` does."""
    registry = MetricRegistry("app", clock=ManualClock())
    seen: list[object] = []

    def steps() -> Iterator[int]:
        try:
            for number in range(9):
                try:
                    seen.append((yield number))
                except KeyError as error:
                    seen.append(error)
        finally:
            seen.append("closed")

    async def steps_later() -> AsyncIterator[int]:
        try:
            for number in range(9):
                try:
                    seen.append((yield number))
                except KeyError as error:
                    seen.append(error)
        finally:
            seen.append("closed")

    thrown = KeyError("k")
    generator: Any = timed("t", registry=registry)(steps)()
    assert [next(generator), generator.send("a"), generator.throw(thrown)] == [0, 1, 2]
    generator.close()

    async def drive() -> None:
        later: Any = timed("t", registry=registry)(steps_later)()
        assert [await anext(later), await later.asend("a"), await later.athrow(thrown)] == [0, 1, 2]
        await later.aclose()

    asyncio.run(drive())
    assert seen == ["a", thrown, "closed"] * 2
    assert registry.timer("t").count == 2


@pytest.mark.parametrize("value", [5, None, property(lambda _: 5)])
def test_what_cannot_be_called_is_refused_when_it_is_decorated(value: object) -> None:
    """The TypeError shows what it was."""
    registry = MetricRegistry("app")
    for decorate in (timed("t", registry=registry), counted("c", registry=registry), count_exceptions("e")):
        with pytest.raises(TypeError, match="can't be called; decorate a function, a method or a callable object"):
            decorate(value)  # type: ignore[operator]
