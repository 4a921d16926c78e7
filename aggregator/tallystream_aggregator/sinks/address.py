"""How a store is reached: HOST:PORT as an option has it, and the client certificate for a server that asks for one."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Files in PEM form; empty where there are none. The key's password is in no representation of it."""

    cert_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, service: str, cert_file: str, key_file: str, key_password: str) -> Self:
        """Return what the variables SERVICE_CERT_FILE, SERVICE_KEY_FILE and SERVICE_KEY_PASSWORD were set to.

        Without a key file the key is in the certificate's file.

        Raises:
            ConfigError: a file can't be read, the two do not belong together, or the password is wrong.
        """
        if key_file and not cert_file:
            raise ConfigError(f"{service}_KEY_FILE", key_file, f"name its certificate in {service}_CERT_FILE")
        if cert_file:
            try:
                # Without a password OpenSSL would ask the terminal for one.
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert_file, key_file or None, key_password)
            except OSError as error:
                remedy = (
                    f"name a certificate in PEM, its key in {service}_KEY_FILE, and the key's password in "
                    f"{service}_KEY_PASSWORD ({error.strerror or error})"
                )
                raise ConfigError(f"{service}_CERT_FILE", cert_file, remedy) from None
        return cls(cert_file, key_file, key_password)


NO_CERTIFICATE = ClientCertificate()
