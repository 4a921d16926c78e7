"""The base class of reporters with a schedule: one daemon thread, one report at a time, and a last one at the end."""

from __future__ import annotations

import atexit
import logging
import threading
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Self
from weakref import WeakSet

from tallystream.clock import Deadline, call_within
from tallystream.errors import ConfigError, DuplicateReporterError, is_of_a_signal
from tallystream.process.fork import Step, after_fork_in_child, before_fork
from tallystream.process.signals import leave_signals_to_other_threads
from tallystream.registry import registry_of
from tallystream.reporters.child_exit import stop_at_child_exit
from tallystream.reporters.filters import MetricFilter
from tallystream.reporters.thread import ReportingThread
from tallystream.validation import check_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from tallystream.registry import MetricRegistry, Reportable

PREFIX = "tallystream.reporter."
MAX_CLOSING_S, CLOSING_SHARE = 1.0, 0.2
"""The time of `stop()` that is reserved for closing: at most so many seconds, and at most this share of its timeout."""

_log = logging.getLogger("tallystream")


class OwnMetrics:
    """The metrics of a reporter. Reporters of the same kind share them in a registry.

    Args:
        registry: the registry of the metrics.
        kind: the value of the tag `reporter`, such as kafka or console.
    """

    def __init__(self, registry: MetricRegistry, kind: str) -> None:
        tags = {"reporter": kind}
        self._clock = registry.clock
        self.sent = registry.counter(PREFIX + "sent", tags=tags)
        self.failed = registry.counter(PREFIX + "failed", tags=tags)
        self.bytes = registry.counter(PREFIX + "bytes", tags=tags)
        self.duration = registry.timer(PREFIX + "duration", tags=tags)
        self.last_error = registry.gauge(PREFIX + "last_error", tags=tags)

    def fail(self) -> None:
        """Count a failure, and set `last_error` to its time in epoch seconds."""
        self.failed.inc()
        self.last_error.set(self._clock.wall_ms() / 1000)


class ScheduledReporter(ABC):
    """Reports a registry every `interval` seconds from a daemon thread, from `start()` to `stop()`.

    The first report is made at a random time in the first interval, so that instances that start together do not report
    together. Reports that become due while another one is made are skipped. A failed report is logged and counted
    (`failures`, `last_error`), and the schedule continues. A last report is made by `stop()`, at the end of a `with`
    block and at the end of the process. After a fork, the child reports its own metrics.

    A subclass must set its attributes before it calls `__init__`, which adds metrics to the registry and includes the
    reporter in forks. So a reporter with invalid arguments leaves nothing behind. The methods that a subclass defines
    are called by one thread at a time.

    Args:
        registry: the registry to report.
        interval: seconds between two reports, from 0.01 to 3600.
        include, exclude: shell patterns of metric names. Metrics that match an `include` and no `exclude` are reported.
        own_metrics: whether the registry has metrics of this reporter, as `tallystream.reporter.*`.

    Raises:
        ConfigError: the interval is out of bounds, or a pattern can't be used.
    """

    kind: ClassVar[str]
    """The value of the tag `reporter` of its own metrics."""

    def __init__(
        self,
        registry: MetricRegistry | Reportable,
        *,
        interval: float,
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
        own_metrics: bool = True,
    ) -> None:
        interval = check_interval(interval)
        self._filter = MetricFilter(include, exclude)
        registry = registry_of(registry)
        self.registry, self.interval = registry, interval
        self.failures = 0
        self.last_error: str | None = None
        self._own = OwnMetrics(registry, self.kind) if own_metrics else None
        self._thread: ReportingThread | None = None
        self._opened = False
        self._monotonic = registry.clock.monotonic
        self._create_locks()
        _reporters.add(self)
        stop_at_child_exit(self)

    @abstractmethod
    def _report(self) -> bool:
        """Make one report without waiting for its delivery; return whether something is in progress."""

    def _open(self) -> None:  # noqa: B027 - most reporters have nothing to open
        """Acquire what is needed to report; safe to call again. May raise ConfigError."""

    def _continue_report(self) -> bool:
        """Process what is in progress; return whether something still is."""
        return False

    def _report_and_wait(self, timeout: float, *, final: bool) -> bool:  # noqa: ARG002 - used by subclasses
        """Make one report and wait for at most `timeout` seconds; return whether it was delivered."""
        self._report()
        return True

    def _close(self, deadline: Deadline) -> None:  # noqa: B027
        """Release what `_open` acquired, within the deadline."""

    def _prepare_fork(self, deadline: Deadline) -> None:  # noqa: B027
        """Release what a fork would break, within the deadline: before a fork, while no report is made."""

    def _abandon(self) -> None:  # noqa: B027
        """Drop everything that belongs to the parent process, without closing it: in the child of a fork."""

    def start(self) -> Self:
        """Start reporting, and return the reporter. Does nothing if it is running.

        Raises:
            ConfigError: an option can't be used.
        """
        with self._start_stop_lock:
            if not self.is_running:
                with self._report_lock:
                    self._ensure_open()
                self._start_thread()
        return self

    def stop(self, timeout: float = 5.0) -> bool:
        """Make a last report and stop, within `timeout` seconds; return whether it was delivered. Safe to call again.

        A fifth of that time, at most one second, is reserved for closing; the last report has the rest. A report that
        takes longer ends in the background. A signal handler may call it too, since another thread makes the report.
        """
        deadline = Deadline(timeout, self._monotonic)
        if not self._start_stop_lock.acquire(timeout=deadline.left()):
            return False
        try:
            thread, self._thread = self._thread, None
            if thread is not None:
                return thread.stop(deadline)
            return call_within(deadline, lambda: self._report_and_close(deadline)) if self._opened else True
        finally:
            self._start_stop_lock.release()

    def report_now(self, timeout: float = 10.0) -> bool:
        """Report the current values and wait for delivery; return False if they are not delivered in `timeout` seconds.

        It works without `start()` too. The report has everything that was counted before the call. A report that takes
        longer ends in the background.

        Raises:
            ConfigError: an option can't be used.
        """
        deadline = Deadline(timeout, self._monotonic)
        return call_within(deadline, lambda: self._report_by(deadline, final=False))

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._thread is not None and not self._thread.has_ended

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.registry.app!r}>"

    def _fail(self, what: str, reason: object, level: int = logging.ERROR) -> None:
        self.failures += 1
        self.last_error = f"{what}: {reason}"
        if self._own:
            self._own.fail()
        _log.log(level, "%r: %s", self, self.last_error)

    def _ensure_open(self) -> None:
        self._open()
        if not self._opened:
            self._opened = True
            _open[self] = None

    def _close_and_unregister(self, deadline: Deadline) -> None:
        self._close(deadline)
        self._opened = False
        _open.pop(self, None)

    def _report_and_close(self, deadline: Deadline) -> bool:
        leave_signals_to_other_threads()
        left = deadline.left()
        try:
            seconds = left - min(MAX_CLOSING_S, CLOSING_SHARE * left)
            return self._report_by(Deadline(seconds, self._monotonic), final=True)
        except ConfigError as error:
            self._fail("the last report failed", error)
            return False
        finally:
            # If there is no time left, since a metric's lock was held, the report at exit closes the reporter.
            in_time = deadline.left() or not deadline.seconds
            if in_time and self._report_lock.acquire(timeout=deadline.left()):
                try:
                    self._close_and_unregister(deadline)
                finally:
                    self._report_lock.release()

    def _report_by(self, deadline: Deadline, *, final: bool) -> bool:
        if not self._report_lock.acquire(timeout=deadline.left()):
            return False
        try:
            self._ensure_open()
            try:
                return self._report_and_wait(deadline.left(), final=final)
            except DuplicateReporterError:
                self._close_and_unregister(deadline)
                raise
            except BaseException as error:  # the result reports the failure, and the log has the reason
                if is_of_a_signal(error):
                    raise
                _log.debug("the failure in full", exc_info=True)
                self._fail("a report failed", str(error) or repr(error))
                return False
        finally:
            self._report_lock.release()

    def _create_locks(self) -> None:
        self._start_stop_lock = threading.RLock()
        self._report_lock = threading.Lock()

    def _start_thread(self) -> None:
        name = f"tallystream-{type(self).__name__}"
        self._thread = ReportingThread(name, self.interval, self._monotonic, self._step, self._report_and_close)

    def _step(self, is_due: Callable[[], bool]) -> bool | None:
        # Another thread is making a report, which has the newest values: this one is skipped.
        if not self._report_lock.acquire(blocking=False):
            is_due()
            return None
        try:
            if is_due():
                self._ensure_open()
                return self._report()
            return self._continue_report()
        except DuplicateReporterError as error:  # any later report would fail in the same way
            self._fail("the reporter has stopped", error)
            self._close_and_unregister(Deadline(MAX_CLOSING_S, self._monotonic))
            raise
        except BaseException as error:  # noqa: BLE001 - one failed report must not stop the reporter
            _log.debug("the failure in full", exc_info=True)
            self._fail("a report failed", str(error) or repr(error))
            return None
        finally:
            self._report_lock.release()

    def pause_for_fork(self, deadline: Deadline) -> Iterator[Callable[[], None]]:
        """Wait for the report that is being made. Yield functions that resume the reporter in the parent."""
        if not self._report_lock.acquire(timeout=deadline.left()):
            return
        yield self._report_lock.release
        try:
            self._prepare_fork(deadline)
        except BaseException as error:  # noqa: BLE001 - Python would only print it, and prepare no other reporter
            self._fail("the reporter could not be prepared for a fork", str(error) or repr(error))

    def restart_in_child(self) -> None:
        """Start again in the child of a fork, if it was running."""
        was_running, self._thread = self.is_running, None
        self._opened = False
        self.failures, self.last_error = 0, None
        self._create_locks()
        self._abandon()
        if was_running:
            self._start_thread()


_reporters: WeakSet[ScheduledReporter] = WeakSet()
_open: dict[ScheduledReporter, None] = {}
"""The reporters that make a last report at the end of the process, in the order in which they were opened.

In the child of a fork they are those of the parent, too: the child may end before its first report.
"""


def _stop_all() -> None:
    with ExitStack() as stop:  # the last one first, and all of them, whatever one raises
        for reporter in list(_open):
            stop.callback(reporter.stop)


# Not when a reporter is created: functions that are registered after this one run before it, and may count.
atexit.register(_stop_all)


def report_all(timeout: float) -> None:
    """Make a report by each reporter of this process that is running, in at most `timeout` seconds for all of them."""
    deadline = Deadline(timeout, monotonic)
    for reporter in list(_reporters):
        if reporter.is_running:
            with suppress(ConfigError):  # the reporter has logged why it can't report
                reporter.report_now(deadline.left())


def _pause_all(deadline: Deadline) -> Iterator[Callable[[], None]]:
    for reporter in list(_reporters):
        yield from reporter.pause_for_fork(deadline)


def _restart_all_in_child() -> None:
    for reporter in list(_reporters):
        reporter.restart_in_child()
        stop_at_child_exit(reporter)


before_fork(Step.REPORTERS, _pause_all)
after_fork_in_child(Step.REPORTERS, _restart_all_in_child)
