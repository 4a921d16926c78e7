"""What happens in the child of a fork, in an order that does not depend on the order of imports."""

from __future__ import annotations

import os
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Step(IntEnum):
    """First everything counted is forgotten, then what was reported; only then may a reporter's thread start again."""

    METRICS = 0
    ACCOUNTS = 1
    REPORTERS = 2


_hooks: list[tuple[Step, Callable[[], None]]] = []


def after_fork_in_child(step: Step, hook: Callable[[], None]) -> None:
    """Call `hook` in the child of every fork, at its step."""
    _hooks.append((step, hook))
    _hooks.sort(key=lambda pair: pair[0])


def _run() -> None:
    for _, hook in _hooks:
        hook()


os.register_at_fork(after_in_child=_run)
