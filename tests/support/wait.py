"""Wait for a condition, up to a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], timeout: float, what: str, *, poll: float | None = None) -> float:
    """Wait until `condition()` is true. Print and return the number of seconds.

    It is called every `poll` seconds, by default after a tenth of the time that has passed: soon after what takes a
    moment, and seldom while a server starts, since a call may cost the processor much.

    Raises:
        AssertionError: it was not true within `timeout` seconds.
    """
    pause, began = threading.Event(), time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < timeout, f"gave up after {timeout:g} s waiting until {what}"
        pause.wait(min(0.5, max(0.01, waited / 10)) if poll is None else poll)
    passed = time.monotonic() - began
    print(f"{what}: after {passed:.2f} s")  # noqa: T201 (the number belongs in the test's output)
    return passed
