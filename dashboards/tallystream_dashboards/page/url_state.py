"""What the page shows, as its address says it: `?view=groups&group=billing&range=1h&at=2026-11-20T03:12`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

from tallystream_aggregator import times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

AHEAD_MS = 60_000
"""The collector's and the broker's clocks may be a little ahead of the page's: the newest is shown all the same."""

RANGES = {"5m": 300, "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
"""The periods one can choose, in seconds."""
DEFAULT_RANGE = "15m"

VIEWS = {"groups": "Consumer groups", "pipeline": "Pipeline", "metrics": "Metrics", "twice": "Processed twice"}
"""The views by their names in the address, as they are called on the page."""
DEFAULT_VIEW = "groups"


@dataclass(frozen=True, slots=True)
class Selection:
    """None means: the first there is (app, metric), all (group), or now (at: a moment in UTC).

    An app and a metric that were `carried` from another view are kept where this one has them among its choices.
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
        """What is shown came less than so many ms after the period's end: none later, where the past is asked for."""
        return 1 if self.at else AHEAD_MS

    def params(self) -> dict[str, str]:
        """Return the query parameters that lead back here."""
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
    """Return what the address asks for; what there isn't becomes the default.

    Without a view it follows from what is named: an app or a metric means the metrics.
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
    """Return a time in ISO 8601, in UTC unless it says otherwise; None for anything else."""
    if not text:
        return None
    try:
        return times.moment(text)
    except ValueError:
        return None


def text(at: datetime) -> str:
    """Return a moment as the address has it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S" if at.second else "%Y-%m-%dT%H:%M")


def chosen_moment(chosen: datetime, asked: str | None) -> str:
    """Return the moment that was chosen, to the minute; with the seconds of the link, where it is the link's minute."""
    at, linked = chosen.replace(tzinfo=UTC), moment(asked)
    same = linked is not None and linked.replace(second=0, microsecond=0) == at.replace(second=0, microsecond=0)
    return text(linked if linked is not None and same else at)


def options(found: Iterable[str], wanted: str | None) -> list[str]:
    """Return the choices, sorted. One that was asked for by a link is there even before it has any data."""
    return sorted({*found, *([wanted] if wanted else [])})


def refresh_every(refresh_s: float, range_s: int) -> float:
    """Return how often to refresh, in seconds: no more often than a period's picture can change to the eye."""
    return max(refresh_s, range_s / 1800)
