"""Hooks around a fork: what must be paused before it, and, in the child, an order that does not depend on imports."""

from __future__ import annotations

import os
from enum import IntEnum
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING

from tallystream.clock import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


WAIT_BEFORE_FORK = 0.2
"""The maximum seconds that a fork waits for all hooks together."""


class Step(IntEnum):
    """The order of the hooks in the child: reset the metrics, then the destinations, then restart the reporters.

    Before the fork the order is reversed: when the metrics are paused, no report reads them any more.
    """

    METRICS = 0
    DESTINATIONS = 1
    REPORTERS = 2


_child_hooks: list[tuple[Step, Callable[[], None]]] = []
_pause_hooks: list[tuple[Step, Callable[[Deadline], Iterable[Callable[[], None]]]]] = []
# By the thread that forks, since several may fork at once. Iterators, so that a second call of a hook continues.
_resume: dict[int, Iterator[Callable[[], None]]] = {}


def after_fork_in_child(step: Step, hook: Callable[[], None]) -> None:
    """Register `hook`, to be called in the child of every fork, at its step."""
    _child_hooks.append((step, hook))
    _child_hooks.sort(key=lambda pair: pair[0])


def before_fork(step: Step, pause: Callable[[Deadline], Iterable[Callable[[], None]]]) -> None:
    """Register `pause`, to be called before every fork with the common deadline.

    The functions that it returns are called after the fork, in the parent. It should be a generator that yields each
    function at once: if a signal handler raises in a later wait, Python only prints the error, and the fork goes on.
    """
    _pause_hooks.append((step, pause))
    _pause_hooks.sort(key=lambda pair: -pair[0])


def _before() -> None:
    deadline = Deadline(WAIT_BEFORE_FORK, monotonic)
    resumes: list[Callable[[], None]] = []
    _resume[get_ident()] = iter(resumes)
    for _, pause in _pause_hooks:
        resumes.extend(pause(deadline))


def _in_parent() -> None:
    for resume in _resume.get(get_ident(), ()):
        resume()
    _resume.pop(get_ident(), None)


def _in_child() -> None:
    _resume.clear()
    for _, hook in _child_hooks:
        hook()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
# If a signal arrives during the fork, Python runs its handler in the first hook after it. The handler may raise and end
# that hook, so the hook is called twice.
os.register_at_fork(after_in_parent=_in_parent)
