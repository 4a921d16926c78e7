"""Draw the first view: each app in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.page import components, tables

if TYPE_CHECKING:
    from tallystream_dashboards.data.home import Home
    from tallystream_dashboards.page.url_state import Selection


def draw_home(home: Home, selection: Selection) -> None:
    """Draw a table of the apps, or what to do if there are none."""
    if home.apps:
        components.table(tables.apps(home, selection), caption="Applications", key="apps-table")
        components.left_out(home.left_out)
    else:
        components.no_app()
