"""The base class of reporters with a schedule: one daemon thread, one report at a time, and a last one at the end."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
from typing import TYPE_CHECKING, ClassVar, Protocol, Self
from weakref import WeakSet

from tallystream.clock import Deadline, call_within
from tallystream.errors import ConfigError, DuplicateReporterError
from tallystream.fork import Step, after_fork_in_child, before_fork
from tallystream.record import MAX_EVERY_MS, MIN_EVERY_MS
from tallystream.reporters.base import OwnMetrics, ReporterBase, ReportingThread, registry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from tallystream.registry import MetricRegistry
    from tallystream.reporters.base import Reportable


class ForkListener(Protocol):
    """The methods of a reporter that take part in a fork."""

    def before_fork(self, deadline: Deadline) -> Iterable[Callable[[], None]]:
        """Pause for a fork. Return functions that resume it in the parent."""

    def after_fork_in_child(self) -> None:
        """Start again, with the counts of this process only."""

    def stop(self) -> bool:
        """Make the last report."""


_followers: WeakSet[ForkListener] = WeakSet()


def follow(reporter: ForkListener) -> None:
    """Include the reporter in every fork, and stop it at the end of a child of multiprocessing."""
    _followers.add(reporter)
    _stop_with_multiprocessing(reporter)


def _before(deadline: Deadline) -> list[Callable[[], None]]:
    return [resume for reporter in list(_followers) for resume in reporter.before_fork(deadline)]


def _in_child() -> None:
    for reporter in list(_followers):
        reporter.after_fork_in_child()
        _stop_with_multiprocessing(reporter)


def _stop_with_multiprocessing(reporter: ForkListener) -> None:
    # Before Python 3.14, a child that multiprocessing or its fork server forks runs no atexit functions. It runs the
    # finalizers of multiprocessing, but first clears those that were registered before its own code runs, for example
    # by the import of the main module. Then it calls the functions that are registered for after the fork.
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return

    def stop_at_exit(it: ForkListener) -> None:
        util.Finalize(None, it.stop, exitpriority=1)

    util.register_after_fork(reporter, stop_at_exit)
    if sys.modules["multiprocessing.process"].parent_process() is not None:
        stop_at_exit(reporter)


before_fork(Step.REPORTERS, _before)
after_fork_in_child(Step.REPORTERS, _in_child)


MOST_FOR_THE_END, SHARE_FOR_THE_END = 1.0, 0.2
"""The time of `stop()` that is reserved for closing: at most so many seconds, and at most this share of its timeout."""

_log = logging.getLogger("tallystream")


class ScheduledReporter(ReporterBase):
    """Reports a registry every `interval` seconds from a daemon thread, from `start()` to `stop()`.

    The first report is made at a random time in the first interval, so that instances that start together do not report
    together. Reports that become due while another one is made are skipped. A failed report is logged and counted
    (`failures`, `last_error`), and the schedule continues. A last report is made by `stop()`, at the end of a `with`
    block and at the end of the process. After a fork, the child reports its own metrics.

    A subclass must set its attributes before it calls `__init__`, which adds metrics to the registry and includes the
    reporter in forks. So a reporter with invalid arguments leaves nothing behind.

    Args:
        registry: the registry to report.
        interval: seconds between two reports, from 0.01 to 3600.
        own_metrics: whether the registry has metrics of this reporter, as `tallystream.reporter.*`.

    Raises:
        ConfigError: the interval is out of bounds.
    """

    kind: ClassVar[str]
    """The value of the tag `reporter` of its own metrics."""

    def __init__(self, registry: MetricRegistry | Reportable, *, interval: float, own_metrics: bool = True) -> None:
        if not MIN_EVERY_MS <= interval * 1000 <= MAX_EVERY_MS:
            raise ConfigError("interval", interval, f"use {MIN_EVERY_MS / 1000} to {MAX_EVERY_MS // 1000} seconds")
        registry = registry_of(registry)
        self.registry, self.interval = registry, interval
        self.failures = 0
        self.last_error: str | None = None
        self._own = OwnMetrics(registry, self.kind) if own_metrics else None
        self._thread: ReportingThread | None = None
        self._opened = False
        self._monotonic = registry.clock.monotonic
        self._make_locks()
        follow(self)

    def start(self) -> Self:
        """Start reporting, and return the reporter. Does nothing if it is running.

        Raises:
            ConfigError: an option can't be used.
        """
        with self._life_cycle:
            if self._thread is None or self._thread.has_ended:
                with self._reporting:
                    self._ready()
                self._start_thread()
        return self

    def stop(self, timeout: float = 5.0) -> bool:
        """Make a last report and stop, within `timeout` seconds; return whether it was delivered. Safe to call again.

        A fifth of that time, at most one second, is reserved for closing; the last report has the rest. A report that
        takes longer ends in the background. A signal handler may call it too, since another thread makes the report.
        """
        deadline = Deadline(timeout, self._monotonic)
        if not self._life_cycle.acquire(timeout=deadline.left()):
            return False
        try:
            thread, self._thread = self._thread, None
            if thread is not None:
                return thread.end(deadline)
            return call_within(deadline, lambda: self._end(deadline)) if self._opened else True
        finally:
            self._life_cycle.release()

    def report_now(self, timeout: float = 10.0) -> bool:
        """Report the current values and wait for delivery; return False if they are not delivered in `timeout` seconds.

        It works without `start()` too. The report has everything that was counted before the call. A report that takes
        longer ends in the background.

        Raises:
            ConfigError: an option can't be used.
        """
        deadline = Deadline(timeout, self._monotonic)
        return call_within(deadline, lambda: self._exclusive(deadline, final=False))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.registry.app!r}>"

    def _error(self, what: str, error: object, level: int = logging.ERROR) -> None:
        self.failures += 1
        self.last_error = f"{what}: {error}"
        if self._own:
            self._own.fail()
        _log.log(level, "%s", self.last_error)

    def _ready(self) -> None:
        self._open()
        if not self._opened:
            self._opened = True
            atexit.register(self.stop)

    def _shut(self, deadline: Deadline) -> None:
        self._close(deadline)
        self._opened = False
        atexit.unregister(self.stop)

    def _end(self, deadline: Deadline) -> bool:
        left = deadline.left()
        try:
            seconds = left - min(MOST_FOR_THE_END, SHARE_FOR_THE_END * left)
            return self._exclusive(Deadline(seconds, self._monotonic), final=True)
        except ConfigError as error:
            self._error("the last report failed", error)
            return False
        finally:
            # If there is no time left, since a metric's lock was held, the report at exit closes the reporter.
            in_time = deadline.left() or not deadline.seconds
            if in_time and self._reporting.acquire(timeout=deadline.left()):
                try:
                    self._shut(deadline)
                finally:
                    self._reporting.release()

    def _exclusive(self, deadline: Deadline, *, final: bool) -> bool:
        if not self._reporting.acquire(timeout=deadline.left()):
            return False
        try:
            self._ready()
            try:
                return self._report_and_wait(deadline.left(), final=final)
            except DuplicateReporterError:
                self._shut(deadline)
                raise
            except Exception as error:  # noqa: BLE001 - the result reports the failure, and the log has the reason
                _log.debug("the failure in full", exc_info=True)
                self._error("a report failed", error)
                return False
        finally:
            self._reporting.release()

    def _make_locks(self) -> None:
        self._life_cycle = threading.RLock()
        self._reporting = threading.Lock()

    def _start_thread(self) -> None:
        self._thread = ReportingThread(
            f"tallystream-{type(self).__name__}",
            self.interval,
            self._monotonic,
            self._turn,
            self._end,
        )

    def _turn(self, is_due: Callable[[], bool]) -> bool | None:
        # Another thread is making a report, which has the newest values: this one is skipped.
        if not self._reporting.acquire(blocking=False):
            is_due()
            return None
        try:
            if is_due():
                self._ready()
                return self._report()
            return self._attend()
        except DuplicateReporterError as error:  # any later report would fail in the same way
            self._error("the reporter has stopped", error)
            self._shut(Deadline(MOST_FOR_THE_END, self._monotonic))
            raise
        except Exception as error:  # noqa: BLE001 - one failed report must not stop the reporter
            _log.debug("the failure in full", exc_info=True)
            self._error("a report failed", error)
            return None
        finally:
            self._reporting.release()

    def before_fork(self, deadline: Deadline) -> Iterable[Callable[[], None]]:
        """Pause for a fork. Return functions that resume it in the parent."""
        if not self._reporting.acquire(timeout=deadline.left()):
            return ()
        self._rest(deadline)
        return (self._reporting.release,)

    def after_fork_in_child(self) -> None:
        """Start again in the child of a fork, if it was running."""
        running, self._thread = self._thread is not None and not self._thread.has_ended, None
        self._opened = False
        self.failures, self.last_error = 0, None
        self._make_locks()
        self._abandon()
        if running:
            self._start_thread()
