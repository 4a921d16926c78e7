"""How often one address may try a password, and what is logged of wrong ones. No password comes here."""

from __future__ import annotations

import ipaddress
import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

SPACING_S = 1.0
"""Seconds between two passwords that are checked for one address."""
MAX_WAIT_S = 5.0
"""A password that would have to wait longer than that is refused unchecked."""
MAX_ADDRESSES = 10_000
LOG_EVERY_S = 60.0


class Attempts:
    """Spaces the attempts of each address; other addresses never wait for them. Not for several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._free_at: dict[str, float] = {}
        self._failed = 0
        self._logged_at = float("-inf")

    def wait_s(self, address: str) -> float | None:
        """Take the next turn of an address: the seconds until it, or None where there are too many before it."""
        now, place = self._clock(), _place(address)
        turn = max(now, self._free_at.pop(place, now))
        if turn - now > MAX_WAIT_S:
            self._free_at[place] = turn
            return None
        if len(self._free_at) >= MAX_ADDRESSES:
            self._forget(now)
        self._free_at[place] = turn + SPACING_S
        return turn - now

    def failed(self, address: str) -> None:
        """Count a wrong password; a line is logged for the first one, and then one a minute at most."""
        self._failed += 1
        now = self._clock()
        if now - self._logged_at >= LOG_EVERY_S:
            count = "a wrong password" if self._failed == 1 else f"{self._failed:,} wrong passwords"
            log.warning("%s given to the page, the last from %s", count, _place(address))
            self._failed, self._logged_at = 0, now

    def _forget(self, now: float) -> None:
        self._free_at = {place: free_at for place, free_at in self._free_at.items() if free_at > now}
        if len(self._free_at) >= MAX_ADDRESSES:
            del self._free_at[next(iter(self._free_at))]


def _place(address: str) -> str:
    """Return what counts as one address: of IPv6 a network of 64 bits, which is what one host is given."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return "an unknown address"
    return str(known) if known.version == 4 else str(ipaddress.ip_network((known, 64), strict=False))
