"""Long work in short turns: the reporter's thread must not keep the application's threads from running."""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOMENT = 1e-5
"""Seconds; the operating system makes about 70 microseconds of it."""

_T = TypeVar("_T")


def let_others_run() -> None:
    """Give up the GIL for a moment. Python itself takes it away after 5 ms only, which an update would wait.

    The moment is long enough for a waiting thread to wake up: given up and taken back at once, it changes nothing.
    """
    sleep(MOMENT)


def in_turns(items: Iterable[_T], size: int) -> Iterator[_T]:
    """Return the items, and let other threads run after each `size` of them."""
    for number, item in enumerate(items, start=1):
        yield item
        if not number % size:
            let_others_run()
