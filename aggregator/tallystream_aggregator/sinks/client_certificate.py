"""The client certificate for a server that asks for one (mTLS): files, checked before anything is connected."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Self

from tallystream.errors import ConfigError


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
