"""An address as an option has it: HOST:PORT, [IPV6]:PORT, or PORT alone where a host is understood."""

from __future__ import annotations

from typing import NamedTuple, Self
from urllib.parse import urlsplit

from tallystream.errors import ConfigError

LOOPBACK = "127.0.0.1"


class Address(NamedTuple):
    """A host, without the brackets of an IPv6 address, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, spec: str, remedy: str, *, host: str = "", lowest: int = 1) -> Self:
        """Return what `text` names; `host` is that of a port alone, `lowest` the least port there may be.

        Raises:
            ConfigError: it is no address; `spec` is what --store was set to, `remedy` what to do.
        """
        full = f"{host}:{text}" if host and ":" not in text else text
        try:
            parts = urlsplit(f"//{full}")
            found, port = parts.hostname, parts.port
        except ValueError:  # a port that is no number, half an IPv6 address
            found, port = None, None
        if not found or port is None or port < lowest or parts.netloc != full or parts.username is not None:
            raise ConfigError("--store", spec, remedy)
        return cls(found, port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
