"""The optional password of the page: its source, the rate limit of attempts, and the login form."""

from __future__ import annotations

import ipaddress
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.http import secret_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ENV = "TALLYSTREAM_PAGE_PASSWORD"


def from_environment(env: Mapping[str, str] | None = None) -> str:
    """Return the password from the file that the environment names, or else from it; empty: no password.

    Raises:
        ConfigError: the file can't be read, is empty, or is not UTF-8.
    """
    env = os.environ if env is None else env
    return secret_file(f"{ENV}_FILE", env) or env.get(ENV, "")


log = logging.getLogger(__name__)

ATTEMPT_INTERVAL_S = 1.0
"""The time between two attempts of one address, in seconds."""
MAX_WAIT_S = 5.0
"""An attempt that would have to wait longer, in seconds, is refused without a check of the password."""
MAX_ADDRESSES = 10_000
LOG_INTERVAL_S = 60.0


class Attempts:
    """The rate limit of attempts, separate for each address. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at: dict[str, float] = {}
        self._failed = 0
        self._logged_at = float("-inf")

    def wait_s(self, address: str) -> float | None:
        """Reserve an attempt of an address, and return the seconds until it; None if too many attempts wait."""
        now, network = self._clock(), _network(address)
        allowed_at = max(now, self._next_at.pop(network, now))
        if allowed_at - now > MAX_WAIT_S:
            self._next_at[network] = allowed_at
            return None
        if len(self._next_at) >= MAX_ADDRESSES:
            self._forget(now)
        self._next_at[network] = allowed_at + ATTEMPT_INTERVAL_S
        return allowed_at - now

    def failed(self, address: str) -> None:
        """Count a wrong password. Log the first one, then at most one line a minute."""
        self._failed += 1
        now = self._clock()
        if now - self._logged_at >= LOG_INTERVAL_S:
            count = "a wrong password" if self._failed == 1 else f"{self._failed:,} wrong passwords"
            log.warning("the page refused %s, the last from %s", count, _network(address))
            self._failed, self._logged_at = 0, now

    def _forget(self, now: float) -> None:
        self._next_at = {network: next_at for network, next_at in self._next_at.items() if next_at > now}
        if len(self._next_at) >= MAX_ADDRESSES:
            del self._next_at[next(iter(self._next_at))]


def _network(address: str) -> str:
    """Return what counts as one address. For IPv6 it is the /64 network, since a host usually has a whole one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "an unknown address"
    return str(parsed) if parsed.version == 4 else str(ipaddress.ip_network((parsed, 64), strict=False))


CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; frame-ancestors 'none'"
)

_PAGE = Path(__file__).with_name("login.html").read_text(encoding="utf-8")


def login_page(message: str = "") -> str:
    """Return the login page, with the sentence `message` above the field. `message` is not escaped."""
    return _PAGE.replace("<!-- message -->", f'<p role="alert">{message}</p>' if message else "")
