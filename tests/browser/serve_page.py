"""Serve the page until SIGTERM: `python serve_page.py STORE READY_FILE`. The password comes from the environment."""

from __future__ import annotations

import sys
from pathlib import Path

from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.page import PageSettings, run
from tallystream_dashboards.page.server import password

if __name__ == "__main__":
    store, ready = sys.argv[1:]
    secret = password.from_environment()
    settings = PageSettings(
        store=StoreSettings.parse(store),
        port=0,
        refresh_s=2.0,
        password=secret,
        ready_file=Path(ready),
    )
    sys.exit(run(settings))
