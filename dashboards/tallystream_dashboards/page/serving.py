"""The settings of the page that this process serves. Streamlit runs `app` by its path, so they can't be arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallystream_dashboards.page.settings import PageSettings

settings: PageSettings | None = None
"""Set by `tallystream_dashboards.page.run` before Streamlit starts."""
