"""The page: sums, living instances and lag, now and over time. Read-only.

`data` reads the store and computes what is shown, `views` draws it, `server` serves it; `app` is run by Streamlit.
"""

from __future__ import annotations

from tallystream_dashboards.page.server.serve import run
from tallystream_dashboards.page.settings import PageSettings

__all__ = ["PageSettings", "run"]
