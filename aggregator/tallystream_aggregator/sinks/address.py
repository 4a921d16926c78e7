"""The address HOST:PORT of a store, and the client certificate for a server that requires one."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from tallystream.errors import ConfigError

LOOPBACK = "127.0.0.1"


def is_host(text: str) -> bool:
    """Return whether a text can be the name or address of a host. No request is made."""
    try:
        text.encode("idna")  # as socket does: a label is not empty and not too long
    except UnicodeError:
        return False
    return not any(char.isspace() for char in text)


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
        try:
            parts = urlsplit(f"//{full}")
            found, port = parts.hostname, parts.port
        except ValueError:  # a port that is not a number, an incomplete IPv6 address
            found, port = None, None
        if not found or port is None or port < lowest or parts.netloc != full or parts.username is not None:
            raise ConfigError("--store", spec, remedy)
        if not is_host(found):  # Python's resolver would raise UnicodeError, or ask for a name that no host has
            raise ConfigError("--store", spec, remedy)
        return cls(found, port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The PEM files of a client certificate, empty if there is none. The `repr` does not have the key's password."""

    cert_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, service: str, cert_file: str, key_file: str, key_password: str) -> Self:
        """Return the certificate that SERVICE_CERT_FILE, SERVICE_KEY_FILE and SERVICE_KEY_PASSWORD are set to.

        Without a key file the key is in the certificate's file.

        Raises:
            ConfigError: a file can't be read, the key is not that of the certificate, the password is wrong, or a key
                file has no certificate file.
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
