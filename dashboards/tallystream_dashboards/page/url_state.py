"""The page's selection in its address, `?view=groups&group=billing&range=1h&at=2026-11-20T03:12`, and links. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tallystream_aggregator import times
from tallystream_dashboards.data.lines import RANGES, Period

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime


MAX_AHEAD_MS = 60_000
"""Points up to this many ms in the future are shown: the collector's and the broker's clocks may be ahead."""

DEFAULT_RANGE = "15m"

VIEWS = {
    "home": "Applications",
    "groups": "Consumer groups",
    "metrics": "Metrics",
    "compare": "Sent and processed",
    "runbook": "Runbook",
}
"""The titles of the views by their names in the address."""
DEFAULT_VIEW = "home"


@dataclass(frozen=True, slots=True)
class Selection:
    """What the page shows. None means the first one (app, metric), all (group), or now (at: a moment in UTC).

    An app and a metric `from_other_view` are kept if they are among this view's choices. `sent` is APP/NAME of the
    counter of what was sent. `section` is that of the runbook; None: all of it.
    """

    view: str = DEFAULT_VIEW
    app: str | None = None
    metric: str | None = None
    sent: str | None = None
    group: str | None = None
    range: str = DEFAULT_RANGE
    at: str | None = None
    from_other_view: bool = False
    section: str | None = None

    @property
    def at_ms(self) -> int | None:
        """The moment at which the period ends, epoch ms; None: now."""
        at = moment(self.at)
        return None if at is None else round(at.timestamp() * 1000)

    def period(self, now_ms: int) -> Period:
        """Return the period, which ends now or at a moment of the past. Of a past period no later points are read."""
        at_ms = self.at_ms
        end_ms = now_ms if at_ms is None else at_ms
        return Period(end_ms - RANGES[self.range] * 1000, end_ms, end_ms + (1 if self.at else MAX_AHEAD_MS))

    def params(self) -> dict[str, str]:
        """Return the query parameters of this selection."""
        sums = self.view in ("metrics", "compare")
        params = {
            "view": self.view,
            "app": self.app if sums else None,
            "metric": self.metric if sums else None,
            "sent": self.sent if self.view == "compare" else None,
            "group": self.group if self.view == "groups" else None,
            "section": self.section if self.view == "runbook" else None,
            "range": self.range,
            "at": self.at,
        }
        return {key: value for key, value in params.items() if value}


def parse(params: Mapping[str, str]) -> Selection:
    """Return the selection in the address, with defaults for missing and unknown parameters.

    The default view is the metrics if the address has an app or a metric, the consumer groups if it has a group, else
    the applications.
    """
    period, at = params.get("range", DEFAULT_RANGE), moment(params.get("at"))
    implied = "groups" if params.get("group") else DEFAULT_VIEW
    implied = "metrics" if params.get("app") or params.get("metric") else implied
    view = params.get("view", implied)
    return Selection(
        view=view if view in VIEWS else implied,
        app=params.get("app") or None,
        metric=params.get("metric") or None,
        sent=params.get("sent") or None,
        group=params.get("group") or None,
        range=period if period in RANGES else DEFAULT_RANGE,
        at=None if at is None else text(at),
        section=params.get("section") or None,
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


def chosen_moment(chosen: datetime, before: str | None) -> str:
    """Return the chosen moment, to the minute. In the minute of `before` it is that moment, with its seconds."""
    at, previous = chosen.replace(tzinfo=UTC), moment(before)
    same = previous is not None and previous.replace(second=0, microsecond=0) == at.replace(second=0, microsecond=0)
    return text(previous if previous is not None and same else at)


def options(names: Iterable[str], selected: str | None) -> list[str]:
    """Return the choices, sorted, including a `selected` one that has no data yet."""
    return sorted({*names, *([selected] if selected else [])})


def refresh_every(refresh_s: float, range_s: int) -> float:
    """Return the refresh interval in seconds. It is longer for long periods, in which charts change slowly."""
    return max(refresh_s, range_s / 1800)


def page_link(params: Mapping[str, str | None], selection: Selection | None = None) -> str:
    """Return the address of a view. With a selection, it has the same period."""
    period = {} if selection is None else {"range": selection.range, "at": selection.at}
    return f"?{urlencode({name: value for name, value in {**params, **period}.items() if value})}"
