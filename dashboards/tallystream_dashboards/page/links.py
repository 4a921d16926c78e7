"""The addresses that the page links to: its own views, the runbook, and the same metric and time in Grafana. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.page.settings import PageSettings
    from tallystream_dashboards.page.url_state import Selection

_DASHBOARDS = {"groups": "lag", "metrics": "metric", "compare": "metric"}
"""The dashboard that shows the same as a view, by the end of its uid."""


def page_link(params: Mapping[str, str | None], selection: Selection | None = None) -> str:
    """Return the address of a view. With a selection, it has the same period."""
    period = {} if selection is None else {"range": selection.range, "at": selection.at}
    return f"?{urlencode({name: value for name, value in {**params, **period}.items() if value})}"


def grafana_link(settings: PageSettings, selection: Selection) -> str | None:
    """Return the address of the dashboard that shows the same as the view, at the same time; None without Grafana."""
    name = _DASHBOARDS.get(selection.view)
    if not settings.grafana_url or name is None:
        return None
    at_ms = selection.at_ms
    period = selection.period(at_ms or 0)
    times = {"from": f"now-{selection.range}", "to": "now"}
    if at_ms is not None:
        times = {"from": str(period.start_ms), "to": str(period.end_ms)}
    variables = {
        f"var-{name}": value for name, value in selection.params().items() if name in ("group", "app", "metric")
    }
    return (
        f"{settings.grafana_url.rstrip('/')}/d/{settings.grafana_uid_prefix}-{name}?{urlencode({**variables, **times})}"
    )
