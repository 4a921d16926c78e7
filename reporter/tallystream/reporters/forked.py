"""Reporters in other processes: at rest before a fork, with a life of their own in a child, and a last report."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from tallystream.fork import Step, after_fork_in_child, before_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tallystream.deadline import Deadline


class Follower(Protocol):
    """A reporter, as a fork sees it."""

    def before_fork(self, deadline: Deadline) -> Iterable[Callable[[], None]]:
        """Come to rest; what is returned ends that in the parent."""

    def after_fork_in_child(self) -> None:
        """Start again, with the counts of this process alone."""

    def stop(self) -> bool:
        """Make the last report."""


_followers: WeakSet[Follower] = WeakSet()


def follow(reporter: Follower) -> None:
    """Let the reporter take part in every fork, and stop at the end of a child of multiprocessing."""
    _followers.add(reporter)
    _stop_with_multiprocessing(reporter)


def _before(deadline: Deadline) -> list[Callable[[], None]]:
    return [go_on for reporter in list(_followers) for go_on in reporter.before_fork(deadline)]


def _in_child() -> None:
    for reporter in list(_followers):
        reporter.after_fork_in_child()
        _stop_with_multiprocessing(reporter)


def _stop_with_multiprocessing(reporter: Follower) -> None:
    # Before Python 3.14 a child that multiprocessing forks, or its fork server does, runs no atexit functions. It runs
    # multiprocessing's finalizers, but first clears those that were made before its own code runs, as by the import of
    # the main module; then it calls what was registered for after the fork.
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return

    def stop_at_exit(it: Follower) -> None:
        util.Finalize(None, it.stop, exitpriority=1)

    util.register_after_fork(reporter, stop_at_exit)
    if sys.modules["multiprocessing.process"].parent_process() is not None:
        stop_at_exit(reporter)


before_fork(Step.REPORTERS, _before)
after_fork_in_child(Step.REPORTERS, _in_child)
