"""The page's selection in its address: `?view=groups&group=billing&range=1h&at=2026-11-20T03:12`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

from tallystream_aggregator import times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

AHEAD_MS = 60_000
"""Points up to this many ms in the future are shown: the collector's and the broker's clocks may be ahead."""

RANGES = {"5m": 300, "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
"""The periods to choose from, in seconds."""
DEFAULT_RANGE = "15m"

VIEWS = {"groups": "Consumer groups", "pipeline": "Pipeline", "metrics": "Metrics", "twice": "Processed twice"}
"""The titles of the views by their names in the address."""
DEFAULT_VIEW = "groups"


@dataclass(frozen=True, slots=True)
class Selection:
    """What the page shows. None means the first one (app, metric), all (group), or now (at: a moment in UTC).

    An app and a metric that were `carried` from another view are kept if they are among this view's choices.
    """

    view: str = DEFAULT_VIEW
    app: str | None = None
    metric: str | None = None
    group: str | None = None
    range: str = DEFAULT_RANGE
    at: str | None = None
    carried: bool = False

    @property
    def range_s(self) -> int:
        """The period in seconds."""
        return RANGES[self.range]

    @property
    def at_ms(self) -> int | None:
        """The moment at which the period ends, epoch ms; None: now."""
        found = moment(self.at)
        return None if found is None else round(found.timestamp() * 1000)

    @property
    def ahead_ms(self) -> int:
        """Points less than this many ms after the period's end are shown: for a moment of the past, no later ones."""
        return 1 if self.at else AHEAD_MS

    def params(self) -> dict[str, str]:
        """Return the query parameters of this selection."""
        sums = self.view in ("metrics", "twice")
        named = {
            "view": self.view,
            "app": self.app if sums else None,
            "metric": self.metric if sums else None,
            "group": self.group if self.view == "groups" else None,
            "range": self.range,
            "at": self.at,
        }
        return {key: value for key, value in named.items() if value}


def parse(params: Mapping[str, str]) -> Selection:
    """Return the selection in the address, with defaults for missing and unknown parameters.

    The default view is the metrics if the address has an app or a metric, else the consumer groups.
    """
    wanted, at = params.get("range", DEFAULT_RANGE), moment(params.get("at"))
    implied = "metrics" if params.get("app") or params.get("metric") else DEFAULT_VIEW
    view = params.get("view", implied)
    return Selection(
        view=view if view in VIEWS else implied,
        app=params.get("app") or None,
        metric=params.get("metric") or None,
        group=params.get("group") or None,
        range=wanted if wanted in RANGES else DEFAULT_RANGE,
        at=None if at is None else text(at),
    )


def moment(text: str | None) -> datetime | None:
    """Return a time from ISO 8601 text, in UTC unless it has another offset; None for other text."""
    if not text:
        return None
    try:
        return times.parse_time(text)
    except ValueError:
        return None


def text(at: datetime) -> str:
    """Return a moment as text for the address."""
    return at.strftime("%Y-%m-%dT%H:%M:%S" if at.second else "%Y-%m-%dT%H:%M")


def chosen_moment(chosen: datetime, asked: str | None) -> str:
    """Return the chosen moment, to the minute. In the minute of the `asked` moment it is that moment, with seconds."""
    at, linked = chosen.replace(tzinfo=UTC), moment(asked)
    same = linked is not None and linked.replace(second=0, microsecond=0) == at.replace(second=0, microsecond=0)
    return text(linked if linked is not None and same else at)


def options(found: Iterable[str], wanted: str | None) -> list[str]:
    """Return the choices, sorted, including a `wanted` one that has no data yet."""
    return sorted({*found, *([wanted] if wanted else [])})


def refresh_every(refresh_s: float, range_s: int) -> float:
    """Return the refresh interval in seconds. It is longer for long periods, in which charts change slowly."""
    return max(refresh_s, range_s / 1800)
