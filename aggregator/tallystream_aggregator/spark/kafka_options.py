"""Translate Kafka options from librdkafka's names, which users write, to those of the Java client, which Spark uses."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

CERTIFICATE = ("ssl.certificate.location", "ssl.certificate.pem")
KEY = ("ssl.key.location", "ssl.key.pem")
KEYSTORE = "ssl.keystore.location"
NAMES = {*CERTIFICATE, *KEY, KEYSTORE}
"""The names of librdkafka's options for the client certificate."""

_PEM = re.compile(r"-----BEGIN ((?:[A-Z]+ )?PRIVATE KEY|CERTIFICATE)-----([^-]+)-----END \1-----")
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""The object identifier of OpenSSL's default encryption, which Java 17 can't read in PEM."""

_PKCS12 = "or put both into a PKCS#12 file (openssl pkcs12 -export) and name it in ssl.keystore.location"


def java_client_certificate(options: Mapping[str, str]) -> dict[str, str]:
    """Return the Java client's options for the client certificate in librdkafka's `options`, empty if it has none.

    Raises:
        ConfigError: the certificate or the key is missing, a file can't be read, or Java can't use it. No message
            contains a key.
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
        raise ConfigError(name, _shown(name, value), "it has no certificate: give PEM (-----BEGIN CERTIFICATE-----)")
    return "\n".join(found)


def _key(name: str, value: str) -> str:
    match = next((match for match in _PEM.finditer(_text(name, value)) if match[1] != "CERTIFICATE"), None)
    if match is None or match[1] not in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        remedy = "Java wants PKCS#8 (-----BEGIN PRIVATE KEY-----): convert it with openssl pkcs8 -topk8 -nocrypt"
        raise ConfigError(name, _shown(name, value), f"{remedy}, {_PKCS12}")
    try:
        begin = base64.b64decode("".join(match[2].split())[:80])
    except binascii.Error:
        raise ConfigError(name, _shown(name, value), "it has a damaged key: give one in PEM") from None
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
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(name, value, f"name a file in PEM that can be read ({why})") from None


def _shown(name: str, value: str) -> str:
    return "***" if name.endswith(".pem") else value


_SAME = {
    "security.protocol",
    "client.id",
    "client.rack",
    "request.timeout.ms",
    "retry.backoff.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "metadata.max.age.ms",
    "socket.connection.setup.timeout.ms",
    "fetch.min.bytes",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "fetch.max.wait.ms",
    "compression.type",
    "linger.ms",
    "batch.size",
}
_RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.key.password": "ssl.key.password",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "ssl.keystore.password": "ssl.keystore.password",
}
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
}
_JAVA = {**{name: name for name in _SAME}, **_RENAMED}
_KNOWN = {*_JAVA, *NAMES, "sasl.username", "sasl.password"}


@dataclass(frozen=True, slots=True)
class Fetch:
    """The retries and timeouts of the query's source.

    `tries` is how often it asks for the end offsets of the topics before the query fails, `pause_ms` the pause between
    two tries. `timeout_ms` is how long a task waits for records that exist before it fails.

    Raises:
        ConfigError: a number is out of range.
    """

    tries: int = 5
    pause_ms: int = 1000
    timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ConfigError("--fetch-tries", self.tries, "give a whole number above zero")
        if self.pause_ms < 0:
            raise ConfigError("--fetch-pause-ms", self.pause_ms, "give milliseconds, 0 for no pause")
        if self.timeout_ms < 1:
            raise ConfigError("--fetch-timeout-ms", self.timeout_ms, "give milliseconds above zero")

    def options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source. Options of Kafka that are set later take precedence."""
        return {
            # A task that has its records asks for the partition's end, on the connection on which the consumer has
            # already requested more records. A broker answers in order, and waits for new records before it answers
            # that fetch: with Kafka's default of 500 ms, a batch of a quiet topic takes that much longer.
            "kafka.fetch.max.wait.ms": "1",
            "fetchOffset.numRetries": str(self.tries),
            "fetchOffset.retryIntervalMs": str(self.pause_ms),
            "kafkaConsumer.pollTimeoutMs": str(self.timeout_ms),
        }


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's `options` as the Java client's, with the prefix `kafka.` that Spark's connector expects.

    Raises:
        ConfigError: an option is not known here, or the login or the client certificate is incomplete.
    """
    java: dict[str, str] = {}
    for name, value in options.items():
        if name not in _KNOWN:
            remedy = f"use one of these, which both Kafka clients have: {', '.join(sorted(_KNOWN))}"
            raise ConfigError("--kafka", name, remedy)
        if name in _JAVA:
            java[_JAVA[name]] = value
    # No check of the host name is "none" in librdkafka and an empty string in Java.
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    if options.keys() & {"ssl.ca.location", "ssl.ca.pem"}:
        java["ssl.truststore.type"] = "PEM"
    java |= java_client_certificate(options) | _login(options)
    return {f"kafka.{name}": value for name, value in java.items()}


def source_options(bootstrap_servers: str, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the options with which Spark's Kafka source and sink connect to the broker.

    Raises:
        ConfigError: as `java_options`.
    """
    return {"kafka.bootstrap.servers": bootstrap_servers, **java_options(options or {})}


def _login(options: Mapping[str, str]) -> dict[str, str]:
    if ("sasl.username" in options) != ("sasl.password" in options):
        given = "sasl.username" if "sasl.username" in options else "sasl.password"
        raise ConfigError("--kafka", given, "give sasl.username and sasl.password together")
    mechanism = options.get("sasl.mechanisms", options.get("sasl.mechanism", ""))
    if "sasl.username" not in options and mechanism not in {"OAUTHBEARER", *_LOGIN_MODULES}:
        return {}
    if mechanism not in _LOGIN_MODULES:
        names = ", ".join(_LOGIN_MODULES)
        remedy = f"with the aggregator and the shipper use {names}, or a client certificate (ssl.certificate.location)"
        raise ConfigError("sasl.mechanism", mechanism, remedy)
    if "sasl.username" not in options:
        raise ConfigError("sasl.mechanism", mechanism, "it needs sasl.username and sasl.password")
    user, password = (_quoted(options[name]) for name in ("sasl.username", "sasl.password"))
    return {"sasl.jaas.config": f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
