"""The settings of a store that is reached over HTTP: its URL, files of secrets and certificates, headers."""

from __future__ import annotations

import re
import ssl
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from urllib.parse import SplitResult


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


def require_url(url: str, spec: str, remedy: str, *, variable: str) -> None:
    """Check that `url` is an HTTP URL.

    `spec` is the value of --store and `remedy` the advice in the error. `variable` has the secrets that must
    not be in the URL.

    Raises:
        ConfigError: it is not, or it has a user or a password.
    """
    if "@" in url:
        kind = spec.partition(":")[0]
        raise ConfigError("--store", f"{kind}:***", f"leave user and password out: {variable} is the secret")
    if not is_http_url(url):
        raise ConfigError("--store", spec, remedy)


def tls_error(error: BaseException | None, url: str, setting: str, ca_file: str) -> ConfigError | None:
    """Return the error of a server's certificate that is not trusted, None for another error, which may pass.

    `setting` names `ca_file`, the file of the CA certificates.
    """
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = f"the certificate of {url} is not trusted ({cause.verify_message}): name its authority's"
            return ConfigError(setting, ca_file, why)
    return None


def connection_problem(error: BaseException) -> str:
    """Return in words why a server gave no answer. `error` is of urllib3 or of the system."""
    cause = list(_causes(error))[-1]
    if isinstance(cause, TimeoutError):
        return "it does not answer in time"
    if isinstance(cause, RemoteDisconnected | IncompleteRead | ConnectionResetError):
        return "it closed the connection before its answer was complete"
    if isinstance(cause, HTTPException):
        return "its answer is not HTTP"
    return (cause.strerror if isinstance(cause, OSError) else None) or str(cause)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, and so on. urllib3 has the cause in one of three places."""
    while error is not None:
        yield error
        causes = (getattr(error, "reason", None), error.__cause__, *error.args)
        error = next((cause for cause in causes if isinstance(cause, BaseException)), None)


def certificates(variable: str, path: str) -> str:
    """Return `path`, the path of a file of CA certificates or empty. `variable` is the setting in the error.

    Raises:
        ConfigError: the file can't be read or has no certificate.
    """
    try:
        if path:
            ssl.create_default_context(cafile=path)
    except OSError as error:  # also raised for a file without a certificate
        raise ConfigError(variable, path, f"name a file of certificates in PEM ({error.strerror or error})") from error
    return path


def secret_file(variable: str, env: Mapping[str, str]) -> str:
    """Return the secret in the file that a variable of the environment names, empty if it names none.

    Raises:
        ConfigError: the file can't be read, or is empty.
    """
    path = env.get(variable, "")
    if not path:
        return ""
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(variable, path, f"it can't be read: {reason}") from error
    if not secret:
        raise ConfigError(variable, path, "it is empty: write the secret into it")
    return secret


OTLP_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
OTLP_HISTOGRAMS = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
OTLP_EXPONENTIAL = "base2_exponential_bucket_histogram"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def otlp_option(name: str, env: Mapping[str, str]) -> str:
    """Return an option of OpenTelemetry's exporters, empty if it is not set. The one for metrics has precedence.

    Source: "OpenTelemetry Protocol Exporter" (opentelemetry.io/docs/specs).
    """
    return env.get(f"OTEL_EXPORTER_OTLP_METRICS_{name}", "") or env.get(f"OTEL_EXPORTER_OTLP_{name}", "")


def otlp_headers(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the headers for an OTLP receiver: `name=value,name=value`, with percent-encoded values.

    They are in OTEL_EXPORTER_OTLP_METRICS_HEADERS, OTEL_EXPORTER_OTLP_HEADERS, or the file that
    OTEL_EXPORTER_OTLP_HEADERS_FILE names, in which a line break separates headers like a comma.

    Raises:
        ConfigError: the file can't be read, or the text does not have this form. It may be a secret: it is not shown.
    """
    text = otlp_option("HEADERS", env) or secret_file(f"{OTLP_HEADERS}_FILE", env)
    headers = []
    for pair in text.replace("\n", ",").split(","):
        name, equals, encoded = (part.strip() for part in pair.partition("="))
        value = unquote(encoded)
        if equals and _HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable():
            headers.append((name, value))
        elif pair.strip():
            remedy = "give name=value,name=value, with a comma in a value as %2C and a percent sign as %25"
            raise ConfigError(OTLP_HEADERS, "***", remedy)
    return tuple(headers)


def otlp_sends_buckets(env: Mapping[str, str]) -> bool:
    """Return whether OpenTelemetry's variable asks for histograms with exponential buckets.

    Raises:
        ConfigError: it has a value that OpenTelemetry does not define.
    """
    value = env.get(OTLP_HISTOGRAMS, "").lower()
    if value not in ("", "explicit_bucket_histogram", OTLP_EXPONENTIAL):
        raise ConfigError(OTLP_HISTOGRAMS, value, f"give {OTLP_EXPONENTIAL}, or do not set it")
    return value == OTLP_EXPONENTIAL
