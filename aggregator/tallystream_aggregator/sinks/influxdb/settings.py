"""Checks the settings of InfluxDB before it is connected: the URL, the token's file, the CA certificates."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def require_url(url: str, spec: str, remedy: str) -> None:
    """Check that `url` is an HTTP URL. `spec` is the value of --store and `remedy` the advice in the error.

    Raises:
        ConfigError: it is not, or it has a user or a password.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, an incomplete IPv6 address
        good, parts = False, urlsplit("")
    if parts.username or parts.password:
        raise ConfigError("--store", "influxdb:***", "leave user and password out: INFLUXDB_TOKEN is the secret")
    if not good:
        raise ConfigError("--store", spec, remedy)


def certificates(path: str) -> str:
    """Return `path`, the path of a file of CA certificates or empty.

    Raises:
        ConfigError: the file can't be read or has no certificate.
    """
    try:
        if path:
            ssl.create_default_context(cafile=path)
    except OSError as error:  # also raised for a file without a certificate
        raise ConfigError("INFLUXDB_CA_FILE", path, f"name a file of certificates in PEM ({error})") from error
    return path


def token_file(env: Mapping[str, str]) -> str:
    """Return the token in the file that INFLUXDB_TOKEN_FILE names, empty if it names none.

    Raises:
        ConfigError: the file can't be read.
    """
    path = env.get("INFLUXDB_TOKEN_FILE", "")
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError("INFLUXDB_TOKEN_FILE", path, f"it can't be read: {reason}") from error
