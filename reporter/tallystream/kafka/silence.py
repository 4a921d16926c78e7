"""How long no record has been acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Silence:
    """The time since the first report that no acknowledgement has followed.

    Args:
        limit: after how many seconds it is `long`.
        monotonic: the clock.
    """

    def __init__(self, limit: float, monotonic: Callable[[], float]) -> None:
        self.limit, self._monotonic = limit, monotonic
        self.long = False
        self._since: float | None = None

    def begin(self) -> None:
        """Note that a report is due; what began earlier stands."""
        if self._since is None:
            self._since = self._monotonic()

    def becomes_long(self) -> bool:
        """Tell, once for each silence, that it has reached the limit."""
        if self.long or self._since is None or self._monotonic() - self._since < self.limit:
            return False
        self.long = True
        return True

    def end(self) -> bool:
        """Note an acknowledgement, or that none is expected any more; return whether the silence was long."""
        was_long, self.long = self.long, False
        self._since = None
        return was_long
