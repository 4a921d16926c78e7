"""The hosts that a request may name, so that no web page reads a server on loopback through its visitor's browser.

A page can let its own name resolve to 127.0.0.1 (DNS rebinding). The browser then takes the server for a part of the
page, but names the page's host in the request.
"""

from __future__ import annotations

import os
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

ENV = "TALLYSTREAM_ALLOWED_HOSTS"


class AllowedHosts:
    """Every IP address, localhost, and the names in `TALLYSTREAM_ALLOWED_HOSTS`, separated by commas.

    A server that does not listen on loopback, or that has a password, answers to any name unless that variable is set.

    Args:
        address: the address that the server listens on.
        has_password: whether the server requires one.
        env: the environment.
    """

    def __init__(self, address: str, *, has_password: bool = False, env: Mapping[str, str] | None = None) -> None:
        given = (os.environ if env is None else env).get(ENV, "")
        self._names = {name.strip().lower() for name in given.split(",") if name.strip()}
        self._all = not self._names and (has_password or not _is_loopback(address))

    def refusal(self, host: str) -> str | None:
        """Return why a request with this `Host` is refused, None if it is not. A browser always sends a host."""
        if self._all or not host:
            return None
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            name = ""
        if name in self._names or name == "localhost" or name.endswith(".localhost") or _is_address(name):
            return None
        return f"The host {host!r} is not allowed: use localhost or an IP address, or name it in {ENV}.\n"


def _is_loopback(address: str) -> bool:
    return address == "localhost" or (_is_address(address) and ip_address(address).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
