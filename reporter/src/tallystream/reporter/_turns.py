"""Long work in short turns: the reporter's thread must not keep the application's threads from running."""

from __future__ import annotations

from threading import local
from time import perf_counter, sleep
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Pace(NamedTuple):
    """How many seconds of work are a turn, and for how many the GIL is given up after it."""

    turn: float
    moment: float


ALONE = Pace(5e-4, 1e-5)
"""Where nobody else needs the GIL for long. The operating system makes 70 to 100 microseconds of the moment."""

CROWDED = Pace(3.5e-4, 3e-4)
"""Where another thread is at work all the time.

It has to wake up, mostly on another processor, before this thread is back: that takes 50 microseconds as a rule, but
more than twice that one time in a hundred. Given up and taken back before, the GIL changes nothing.
"""

KEPT_WAITING = 1e-3
"""Seconds beyond the moment after which it was others who kept this thread waiting, not the operating system."""

FRESH = 0.9
"""The share of a turn that is left of one that has hardly begun, at least."""

_T = TypeVar("_T")


class _Turn(local):
    """This thread's: when it ends, at which pace turns go, and whether others were seen in the course of them."""

    end = 0.0
    pace = CROWDED
    crowded = True


_turn = _Turn()


def begin_turns() -> None:
    """Begin with the first turn of a piece of work, at the pace that the last one showed to be right."""
    _turn.pace = CROWDED if _turn.crowded else ALONE
    _turn.crowded = False
    _turn.end = perf_counter() + _turn.pace.turn


def let_others_run() -> None:
    """Give up the GIL for a moment, and begin a turn. Python itself takes it away after 5 ms only.

    So long has this thread to wait for it, too, where another one does not give it up by itself: that is a crowd.
    """
    given_up = perf_counter()
    sleep(_turn.pace.moment)
    now = perf_counter()
    if now - given_up > _turn.pace.moment + KEPT_WAITING:
        _turn.pace, _turn.crowded = CROWDED, True
    _turn.end = now + _turn.pace.turn


def ensure_time(seconds: float) -> None:
    """Let others run, if less than so much of the turn is left: for what can't be interrupted.

    What takes longer than a turn has one that has hardly begun.
    """
    if perf_counter() + min(seconds, FRESH * _turn.pace.turn) > _turn.end:
        let_others_run()


def in_turns(items: Iterable[_T]) -> Iterator[_T]:
    """Return the items, and let other threads run whenever the work of this thread has taken a turn."""
    end = _turn.end
    for item in items:
        yield item
        if (now := perf_counter()) > end:
            if now > _turn.end:  # unless another one has begun meanwhile
                let_others_run()
            end = _turn.end
