"""When a component that died is started again."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S, LONGEST_S = 0.5, 30.0
STEADY_S = 60.0
"""A component that ran this long is taken to be well: its next death is the first one again."""


@dataclass(slots=True)
class Backoff:
    """Counts the deaths of one component. Times are seconds of any clock that never goes back."""

    deaths: int = 0

    def died(self, ran_s: float) -> float:
        """Return the pause in seconds before the next start: 0.5, 1, 2 … 30; `ran_s` is how long it had run."""
        if ran_s >= STEADY_S:
            self.deaths = 0
        self.deaths += 1
        return float(min(LONGEST_S, FIRST_S * 2.0 ** min(self.deaths - 1, 30)))
