"""A client's certificate and key for the Java client: librdkafka's options name files, Java's PEM store wants texts."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

CERTIFICATE = ("ssl.certificate.location", "ssl.certificate.pem")
KEY = ("ssl.key.location", "ssl.key.pem")
KEYSTORE = "ssl.keystore.location"
NAMES = {*CERTIFICATE, *KEY, KEYSTORE}
"""The options of librdkafka that are read here."""

_PEM = re.compile(r"-----BEGIN ((?:[A-Z]+ )?PRIVATE KEY|CERTIFICATE)-----([^-]+)-----END \1-----")
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""The object identifier of OpenSSL's usual encryption, which Java 17 can't read in PEM."""

_PKCS12 = "or put both into a PKCS#12 file (openssl pkcs12 -export) and name it in ssl.keystore.location"


def java_client_certificate(options: Mapping[str, str]) -> dict[str, str]:
    """Return the Java client's options for the client certificate of librdkafka's `options`; none where there is none.

    Raises:
        ConfigError: half of it is missing, a file can't be read, or Java can't use it. No message shows a key.
    """
    certificate, key = (_given(options, names) for names in (CERTIFICATE, KEY))
    if KEYSTORE in options:
        if certificate or key:
            raise ConfigError("--kafka", KEYSTORE, f"give it or {certificate or key}, not both")
        return {"ssl.keystore.location": options[KEYSTORE], "ssl.keystore.type": "PKCS12"}
    if not certificate and not key:
        return {}
    if not certificate or not key:
        raise ConfigError("--kafka", certificate or key, f"give {CERTIFICATE[0]} and {KEY[0]} together")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _certificates(certificate, options[certificate]),
        "ssl.keystore.key": _key(key, options[key]),
    }


def _given(options: Mapping[str, str], names: tuple[str, str]) -> str:
    return next((name for name in names if name in options), "")


def _certificates(name: str, value: str) -> str:
    found = [match[0] for match in _PEM.finditer(_text(name, value)) if match[1] == "CERTIFICATE"]
    if not found:
        raise ConfigError(name, _shown(name, value), "it holds no certificate: give PEM (-----BEGIN CERTIFICATE-----)")
    return "\n".join(found)


def _key(name: str, value: str) -> str:
    match = next((match for match in _PEM.finditer(_text(name, value)) if match[1] != "CERTIFICATE"), None)
    if match is None or match[1] not in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        remedy = "Java wants PKCS#8 (-----BEGIN PRIVATE KEY-----): convert it with openssl pkcs8 -topk8 -nocrypt"
        raise ConfigError(name, _shown(name, value), f"{remedy}, {_PKCS12}")
    try:
        begin = base64.b64decode("".join(match[2].split())[:80])
    except binascii.Error:
        raise ConfigError(name, _shown(name, value), "it holds a damaged key: give one in PEM") from None
    if match[1].startswith("ENCRYPTED") and _PBES2 in begin:
        remedy = "Java 17 can't decrypt it (PBES2): encrypt it with openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES"
        raise ConfigError(name, _shown(name, value), f"{remedy}, {_PKCS12}")
    return match[0]


def _text(name: str, value: str) -> str:
    if name.endswith(".pem"):
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(name, value, f"name a file in PEM that can be read ({why})") from None


def _shown(name: str, value: str) -> str:
    return "***" if name.endswith(".pem") else value
