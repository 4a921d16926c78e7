"""Updates that a signal's handler interrupts by raising, as `sys.exit(0)`, Ctrl-C or Celery's soft time limit do."""

from __future__ import annotations

import sys
from threading import Thread
from typing import TYPE_CHECKING, Any

from tallystream import MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream.testing import ManualClock


def interruptions(prepare: Callable[[], Callable[[], object]]) -> Iterator[SystemExit]:
    """Call the update that `prepare()` returns again and again, each time interrupted at a later moment.

    The moments are those at which Python calls handlers: at the start of a function, and after a call of a built-in
    function. A profile function raises at each of them. The last update is not interrupted, and yields nothing.
    """
    moment, is_over = 0, False

    def profile(_: object, event: str, argument: Any) -> None:
        nonlocal left
        # After a lock's `__enter__`, only a Python 3.14 calls handlers (github.com/python/cpython/issues/148874).
        left -= event == "call" or (event == "c_return" and argument.__name__ != "__enter__")
        if left < 0:
            raise SystemExit

    while not is_over:
        update, left, is_over = prepare(), moment, True
        try:
            sys.setprofile(profile)
            update()
        except SystemExit as error:
            is_over = False
            yield error
        finally:
            sys.setprofile(None)
        moment += 1
    assert moment > 3


def test_an_interrupted_atomic_block_does_not_lock_the_registry(clock: ManualClock) -> None:
    """Another thread makes a snapshot while the exception is handled."""
    registry = MetricRegistry("app", clock=clock)
    one, two = registry.counter("one"), registry.counter("two")

    def update() -> None:
        with registry.atomic():
            one.inc()
            two.inc()

    for error in interruptions(lambda: update):
        found: list[Any] = []
        thread = Thread(target=lambda found=found: found.append(registry.snapshot()), daemon=True)
        thread.start()
        thread.join(10)
        assert found, error
