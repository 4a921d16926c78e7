"""The address of a store: HOST:PORT or a URL. No request is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import urlsplit

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

LOOPBACK = "127.0.0.1"


def split_url(text: str) -> SplitResult | None:
    """Return the parts of a URL, None if its host or port can't be one."""
    from urllib3.util import parse_url  # slow to import

    try:
        parts = urlsplit(text)
        parse_url(text)  # refuses other international names than Python
        host, _ = (parts.hostname or "").encode("idna"), parts.port  # as socket does: no label is empty or too long
    except ValueError:  # a port that is not a number, an incomplete IPv6 address, a name that no host has
        return None
    return parts if host and not any(char.isspace() for char in text) else None


def is_http_url(text: str) -> bool:
    """Return whether a text is an HTTP URL."""
    parts = split_url(text)
    return parts is not None and parts.scheme in {"http", "https"} and parts.port != 0


class Address(NamedTuple):
    """A host, without the brackets of an IPv6 address, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, spec: str, remedy: str, *, host: str = "", lowest: int = 1) -> Self:
        """Return the address in `text`.

        `host` is the default if `text` is only a port, `lowest` the lowest valid port. `spec` is the value of --store
        and `remedy` the advice in the error.

        Raises:
            ConfigError: `text` is not an address.
        """
        full = f"{host}:{text}" if host and ":" not in text else text
        parts = split_url(f"//{full}")
        if (
            parts is None
            or parts.netloc != full
            or "@" in full
            or (parts.port if parts.port is not None else -1) < lowest
        ):
            raise ConfigError("--store", spec, remedy)
        return cls(parts.hostname or "", parts.port or 0)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
