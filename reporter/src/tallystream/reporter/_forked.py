"""Reporters over a fork: at rest before it, and, in the child, a life of their own to its very end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from tallystream.reporter._forks import Step, after_fork_in_child, before_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tallystream.reporter._deadline import Deadline


class Follower(Protocol):
    """A reporter, as a fork sees it."""

    def before_fork(self, deadline: Deadline) -> Iterable[Callable[[], None]]:
        """Come to rest; what is returned ends that in the parent."""

    def after_fork_in_child(self) -> bool:
        """Begin anew, and return whether there is something to end."""

    def stop(self) -> bool:
        """Make the last report."""


_followers: WeakSet[Follower] = WeakSet()


def follow(reporter: Follower) -> None:
    """Let the reporter take part in every fork."""
    _followers.add(reporter)


def _before(deadline: Deadline) -> list[Callable[[], None]]:
    return [go_on for reporter in list(_followers) for go_on in reporter.before_fork(deadline)]


def _in_child() -> None:
    for reporter in list(_followers):
        if reporter.after_fork_in_child():
            _end_with_multiprocessing(reporter)


def _end_with_multiprocessing(reporter: Follower) -> None:
    # The child of a `multiprocessing` fork ends without atexit before Python 3.14.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # the child forgets its parent's finalizers first, and calls this afterwards
        util.register_after_fork(reporter, lambda it: util.Finalize(None, it.stop, exitpriority=1))


before_fork(Step.REPORTERS, _before)
after_fork_in_child(Step.REPORTERS, _in_child)
