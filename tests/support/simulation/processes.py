"""A simulated process: ordinary code in a greenlet, whose requests are scheduling points.

The code stops at each request until the scheduler lets it go on. So one process runs at a time, without threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from greenlet import greenlet  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.simulation.scheduler import Scheduler

Answer = TypeVar("Answer")


class Killed(BaseException):
    """The process is dead: its code is unwound, and all its requests are in vain."""


class Request(NamedTuple):
    """What a process wants to do next."""

    what: str
    effect: Callable[[], Any]
    ready: Callable[[], bool] | None
    may_fail: bool
    may_be_late: bool


class Process:
    """A simulated process."""

    def __init__(self, scheduler: Scheduler, name: str, run: Callable[[Process], object]) -> None:
        self.name = name
        self.frozen = False
        self.result: object = None
        self.error: Exception | None = None
        """What ended it, if it is of the scheduler's `expected` errors."""
        self.request: Request | None = None
        self.killed = False
        self.ended = False
        self._scheduler = scheduler
        self._run = run
        self.greenlet = greenlet(self._main, scheduler.greenlet)

    def _main(self, _: object) -> None:
        self.call("start", lambda: None, may_fail=False)
        try:
            self.result = self._run(self)
        except self._scheduler.expected as error:
            self.error = error

    # What the code of the process may use.

    def call(
        self,
        what: str,
        effect: Callable[[], Answer],
        *,
        ready: Callable[[], bool] | None = None,
        may_fail: bool = True,
        may_be_late: bool = False,
    ) -> Answer:
        """Stop until the scheduler lets this request happen, and return what `effect` returns, or raise what it raises.

        It waits for `ready`. The effect runs outside of the process and must not make requests.

        Raises:
            BrokerError: the scheduler chose so, and `may_fail` is true.
            Killed: the process is dead.
        """
        if self.killed:
            raise Killed
        self.request = Request(what, effect, ready, may_fail, may_be_late)
        answer: Answer = self._scheduler.greenlet.switch()
        return answer

    def sleep(self, seconds: float) -> None:
        """Let time pass for this process. What others do meanwhile is up to the scheduler."""
        self.call("sleep", lambda: self.pass_time(seconds), may_fail=False)

    def monotonic(self) -> float:
        return self._scheduler.cluster.now_ms / 1000

    # What the world may do.

    def is_ready(self) -> bool:
        """Tell whether the next request of the process can happen."""
        request = self.request
        return request is not None and not self.frozen and (request.ready is None or request.ready())

    def wake(self) -> None:
        """Let a frozen process go on."""
        self.frozen = False

    # What effects may use.

    def choose(self, n: int, what: str) -> int:
        """Let the scheduler choose a number from 0 to n - 1."""
        return self._scheduler.choose(n, what)

    def pass_time(self, seconds: float) -> None:
        self._scheduler.cluster.now_ms += round(seconds * 1000)
