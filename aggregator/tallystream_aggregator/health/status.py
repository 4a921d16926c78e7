"""Whether a query is alive, and whether it is ready: each answered with a reason where the answer is no."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tallystream.clock import Clock

Stage = Literal["starting", "standing by", "running", "ended"]

QUIET_S = 300.0
"""Seconds after which a query that neither finished a batch nor looked for one is taken for stuck, or 20 triggers."""


class Status:
    """What is known of one query; for any thread. `trigger_s` is the interval of its batches.

    Starting, standing by, and waiting for a store that is away are all alive: to be started again would help none.
    """

    def __init__(self, clock: Clock, *, trigger_s: float = 0.5) -> None:
        self._clock = clock
        self._limit_s = max(QUIET_S, 20 * trigger_s)
        self._looked = clock.monotonic()
        self.stage: Stage = "starting"
        self._worked = False
        self.batch: int | None = None
        self.waiting_for: str | None = None

    def stand_by(self) -> None:
        """Note that another one has the lease."""
        self.stage = "standing by"

    def run(self) -> None:
        """Note that the query has begun."""
        self.stage, self._looked, self._worked = "running", self._clock.monotonic(), False

    def look(self, batch: int | None = None) -> None:
        """Note that the query has looked for records, and finished this batch if it found some."""
        self._looked, self._worked = self._clock.monotonic(), True
        if batch is not None:
            self.batch = batch

    def end(self) -> None:
        """Note that the query has ended."""
        self.stage = "ended"

    def quiet_s(self) -> float:
        """Return the seconds since the query finished a batch or looked for one, 0 before it has begun."""
        return self._clock.monotonic() - self._looked if self.stage == "running" else 0.0

    def sick(self) -> str | None:
        """Return why the query has to be taken for dead, None while it is alive."""
        if self.stage == "ended":
            return "the query has ended"
        quiet = self.quiet_s()
        if quiet > self._limit_s and self.waiting_for is None:
            return f"no batch was finished or looked for in {quiet:.0f} s"
        return None

    def unready(self) -> str | None:
        """Return why the query does not do its work now, None when it does."""
        if self.stage in ("starting", "standing by"):
            return self.stage
        if self.waiting_for is not None:
            return f"waiting for {self.waiting_for}"
        return self.sick() or (None if self._worked else "the first batch is not done")
