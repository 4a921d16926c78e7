"""Code that a signal's handler or a finalizer interrupts, at each moment at which Python may call one."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def end() -> None:
    """Raise what the handler of a signal raises to end the process: the usual interruption."""
    raise SystemExit


def interruptions(
    prepare: Callable[[], Callable[[], object]], interrupt: Callable[[], object] = end
) -> Iterator[BaseException | None]:
    """Call what `prepare()` returns again and again, each time interrupted at a later moment by `interrupt()`.

    The moments are those at which Python calls handlers: at the start of a function, and after a call of a built-in
    function. A profile function interrupts at each of them. Yields what an interrupted call has raised, if anything,
    after each; the last call is not interrupted, and yields nothing.
    """
    moment, left, is_over = 0, 0, False

    def profile(_: object, event: str, argument: Any) -> None:
        nonlocal left
        # After a lock's `__enter__`, only a Python 3.14 calls handlers (github.com/python/cpython/issues/148874).
        if event == "call" or (event == "c_return" and argument.__name__ != "__enter__"):
            left -= 1
            if left == -1:
                interrupt()

    while not is_over:
        call, left = prepare(), moment
        error: BaseException | None = None
        gc.disable()  # a finalizer of another test would have these moments too
        try:
            sys.setprofile(profile)
            call()
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - it is yielded, unlike the end of a test's time
            error = raised
        finally:
            sys.setprofile(None)
            gc.enable()
        is_over = left >= 0
        if not is_over:
            yield error
        elif error is not None:
            raise error
        moment += 1
    assert moment > 3
