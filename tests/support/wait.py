"""Wait for a condition, up to a limit."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_until(condition: Callable[[], object], timeout: float, what: str, *, poll: float = 0.1) -> float:
    """Wait until `condition()` is true. Print and return the number of seconds.

    Raises:
        AssertionError: it was not true within `timeout` seconds.
    """
    pause, began = threading.Event(), time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout, f"gave up after {timeout:g} s waiting until {what}"
        pause.wait(poll)
    passed = time.monotonic() - began
    print(f"{what}: after {passed:.2f} s")  # noqa: T201 (the number belongs in the test's output)
    return passed
