"""A deadline for several waits, one after the other, and for a call that has none itself."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Deadline:
    """The moment `seconds` from now, by the given monotonic clock."""

    __slots__ = ("_end", "_monotonic", "seconds")

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self.seconds, self._monotonic = seconds, monotonic
        self._end = monotonic() + seconds

    def left(self) -> float:
        """Return the seconds until then, 0 when it has passed."""
        return max(self._end - self._monotonic(), 0.0)


def call_within(deadline: Deadline, call: Callable[[], bool]) -> bool:
    """Make the call in a thread of its own, and return its result, or False if it has not ended at the deadline.

    It then ends in the background. An error that it raises in time is raised here. While the interpreter ends, and
    takes no more threads, the call is made in this thread, without a deadline.
    """
    results: list[bool] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
            errors.append(error)

    thread = Thread(target=run, name="tallystream-call", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return call()
    thread.join(deadline.left())
    for error in errors:
        raise error
    return any(results)
