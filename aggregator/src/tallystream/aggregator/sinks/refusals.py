"""Points that a store will never take: counted, logged, and told to whoever wants to keep them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.aggregator.sinks.base import Point

log = logging.getLogger(__name__)


class Refusals:
    """What one sink refuses for good. `listen` is called with each point and the reason, if it is set."""

    def __init__(self, store: str) -> None:
        self._store = store
        self.number = 0
        self.listen: Callable[[Point, str], None] | None = None

    def add(self, point: Point, reason: object) -> None:
        """Take one."""
        self.number += 1
        said = f"{self._store} refuses a point of {point.measurement!r} for good: {reason}"
        log.warning("%s", said)
        if self.listen is not None:
            self.listen(point, said)
