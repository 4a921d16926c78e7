"""The last report of child processes that run no atexit functions: those of multiprocessing and of Celery."""

from __future__ import annotations

import sys
from typing import Protocol
from weakref import WeakSet, ref


class Reporter(Protocol):
    """What can be stopped."""

    def stop(self) -> bool:
        """Make a last report, and stop."""


_in_celery: WeakSet[Reporter] = WeakSet()


def stop_at_child_exit(reporter: Reporter) -> None:
    """Stop the reporter when this process ends, if it is such a child, and in children that are forked later.

    Call it when the reporter is created, and in the child of each fork: only then may these libraries be imported.
    """
    _stop_with_multiprocessing(reporter)
    _stop_with_celery(reporter)


def _stop_with_multiprocessing(reporter: Reporter) -> None:
    # Before Python 3.14, a child that multiprocessing or its fork server forks runs no atexit functions. It runs the
    # finalizers of multiprocessing, but first clears those that were registered before its own code runs, for example
    # by the import of the main module. Then it calls the functions that are registered for after the fork.
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return

    def stop_at_exit(running: Reporter) -> None:
        util.Finalize(running, _stop, (ref(running),), exitpriority=1)  # one that is stopped may be collected before

    util.register_after_fork(reporter, stop_at_exit)
    if sys.modules["multiprocessing.process"].parent_process() is not None:
        stop_at_exit(reporter)


def _stop(reference: ref[Reporter]) -> None:
    reporter = reference()
    if reporter is not None:
        reporter.stop()


def _stop_with_celery(reporter: Reporter) -> None:
    # A process of Celery's prefork pool ends with os._exit. Just before, it sends this signal, also after SIGTERM.
    signals = sys.modules.get("celery.signals")
    if signals is not None:
        _in_celery.add(reporter)
        signals.worker_process_shutdown.connect(_stop_all, weak=False, dispatch_uid="tallystream")


def _stop_all(**_: object) -> None:
    for reporter in list(_in_celery):
        reporter.stop()
