"""What the page shows, as its address says it: `?app=orders&metric=records.processed&range=1h&group=billing`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RANGES = {"5m": 300, "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400}
"""The periods one can choose, in seconds."""
DEFAULT_RANGE = "15m"


@dataclass(frozen=True, slots=True)
class Selection:
    """None means: the first there is (app, metric), or all (group)."""

    app: str | None = None
    metric: str | None = None
    group: str | None = None
    range: str = DEFAULT_RANGE

    @property
    def range_s(self) -> int:
        """The period in seconds."""
        return RANGES[self.range]

    def params(self) -> dict[str, str]:
        """Return the query parameters that lead back here."""
        named = {"app": self.app, "metric": self.metric, "group": self.group, "range": self.range}
        return {key: value for key, value in named.items() if value}


def parse(params: Mapping[str, str]) -> Selection:
    """Return what the address asks for; a range that there isn't becomes the default one."""
    wanted = params.get("range", DEFAULT_RANGE)
    return Selection(
        app=params.get("app") or None,
        metric=params.get("metric") or None,
        group=params.get("group") or None,
        range=wanted if wanted in RANGES else DEFAULT_RANGE,
    )


def options(found: Iterable[str], wanted: str | None) -> list[str]:
    """Return the choices, sorted. One that was asked for by a link is there even before it has any data."""
    return sorted({*found, *([wanted] if wanted else [])})


def refresh_every(refresh_s: float, range_s: int) -> float:
    """Return how often to refresh, in seconds: no more often than a period's picture can change to the eye."""
    return max(refresh_s, range_s / 1800)
