"""Long work in short turns: the reporter's thread must not keep the application's threads from running."""

from __future__ import annotations

from time import perf_counter, sleep
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOMENT = 1e-5
"""Seconds; the operating system makes about 70 microseconds of it."""

TURN = 4e-4
"""Seconds of work after which others get their turn."""

_T = TypeVar("_T")


def let_others_run() -> None:
    """Give up the GIL for a moment. Python itself takes it away after 5 ms only, which an update would wait.

    The moment is long enough for a waiting thread to wake up: given up and taken back at once, it changes nothing.
    """
    sleep(MOMENT)


def in_turns(items: Iterable[_T]) -> Iterator[_T]:
    """Return the items, and let other threads run whenever the work on them has taken a turn."""
    end = perf_counter() + TURN
    for item in items:
        yield item
        if perf_counter() > end:
            let_others_run()
            end = perf_counter() + TURN
