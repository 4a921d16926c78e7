"""The page for people on call: sums, living instances and lag, now and over time. Read-only.

`lines`, `sums`, `lags`, `tables` and `selection` are pure; `reading` reads the store; `app` is what Streamlit runs.
"""

from __future__ import annotations

from tallystream.dashboards.page.serve import run
from tallystream.dashboards.page.settings import PageSettings

__all__ = ["PageSettings", "run"]
