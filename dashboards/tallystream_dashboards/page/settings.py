"""Settings of `tallystream page`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_aggregator.sinks.stores import StoreSettings

MIN_REFRESH_S, MAX_REFRESH_S = 0.5, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """Settings of the page.

    Args:
        store: the store to read.
        port: the port to listen on; 0: a free one.
        address: the address to listen on. Beyond loopback, set a password.
        refresh_s: seconds between refreshes, 0.5 to 3,600; long periods are refreshed less often.
        password: the password of the page; empty: no login.
        ready_file: a file that is created when the page answers. Its content is the page's address.

    Raises:
        ConfigError: the port or the refresh is out of its bounds.
    """

    store: StoreSettings
    port: int = 8501
    address: str = "127.0.0.1"
    refresh_s: float = 2.0
    ready_file: Path | None = None
    password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ConfigError("--port", self.port, "give a port from 1 to 65535, or 0 for a free one")
        if not MIN_REFRESH_S <= self.refresh_s <= MAX_REFRESH_S:
            raise ConfigError("--refresh", self.refresh_s, "give seconds from 0.5 to 3600")


served: PageSettings | None = None
"""The settings of the page that this process serves. Streamlit runs `app` by its path, so they can't be arguments."""
