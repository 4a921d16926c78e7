"""A client of Grafana's HTTP API. Every failure becomes an error of one sentence without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context

from tallystream.errors import ConfigError, TallystreamError
from tallystream.validation import header_token
from tallystream_aggregator.sinks.http import NO_CERTIFICATE, ClientCertificate, is_http_url, tls_error

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_dashboards.grafana.push.secrets import Secrets

TOKEN = "GRAFANA_TOKEN"  # noqa: S105 (the name of an environment variable, not a secret)
URL = "--grafana-url"
TIMEOUT_S = 15.0


class Grafana:
    """A Grafana server.

    Args:
        url: the server's URL, including the path of a reverse proxy.
        token: the token of a service account.
        secrets: the secrets that no message may contain.
        ca_file: CA certificates to trust instead of the system's.
        certificate: the client certificate.

    Raises:
        ConfigError: the URL is invalid, or `ca_file` does not exist.
    """

    def __init__(
        self,
        url: str,
        token: str,
        secrets: Secrets,
        ca_file: Path | None = None,
        certificate: ClientCertificate = NO_CERTIFICATE,
    ) -> None:
        _require_url(url)
        if ca_file is not None and not ca_file.is_file():
            raise ConfigError("--ca-file", str(ca_file), "name a file with certificates in PEM form")
        self._url, self._secrets, self._certificate = url, secrets, certificate
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {header_token(TOKEN, token)}"
        # Each request passes it: REQUESTS_CA_BUNDLE would override an attribute of the session.
        self._verify = True if ca_file is None else str(ca_file)
        if certificate.cert_file:
            self._session.mount("https://", _CertificateAdapter(certificate))

    def request(self, operation: str, method: str, path: str, body: Any = None, *, editable: bool = False) -> Any:
        """Send a request, and return the JSON of the response. None: it is empty, or Grafana returns 404 for a GET.

        Args:
            operation: what the request does, for error messages: the end of "it may not …".
            method: the HTTP method.
            path: the path below `/api`, URL-encoded.
            body: is sent as JSON.
            editable: let people edit in Grafana what is written through the provisioning API.

        Raises:
            ConfigError: the URL, the certificate or the token can't be used, or Grafana rejects the request.
        """
        try:
            response = self._session.request(
                method,
                f"{self._url.rstrip('/')}/api{path}",
                json=body,
                headers={"X-Disable-Provenance": "true"} if editable else {},
                timeout=TIMEOUT_S,
                verify=self._verify,
                allow_redirects=False,  # a redirected POST becomes a GET, which would look like a success
            )
        except requests.exceptions.RequestException as error:
            raise self._no_answer(error) from None
        if response.is_redirect:
            raise ConfigError(URL, self._url, "it redirects to another URL: give that one")
        if method == "GET" and response.status_code == 404:
            return None
        if response.status_code >= 400:
            raise self._error(response, operation)
        if not response.content:
            return None
        try:
            return response.json()
        except requests.exceptions.JSONDecodeError:
            raise ConfigError(URL, self._url, "the server is not Grafana: its response is not JSON") from None

    def require_grafana(self) -> None:
        """Check that the server is Grafana.

        Raises:
            ConfigError: it is not, or does not answer.
        """
        health = self.request("read its health", "GET", "/health")
        if not isinstance(health, dict) or "database" not in health:
            remedy = "the server is not Grafana; add the path of the reverse proxy if it has one, as in /grafana"
            raise ConfigError(URL, self._url, remedy)

    def _no_answer(self, error: requests.exceptions.RequestException) -> ConfigError:
        ca = ("--ca-file", "" if self._verify is True else str(self._verify))
        tls = tls_error(error, self._url, ca, ("GRAFANA_CERT_FILE", self._certificate.cert_file))
        if tls is not None:
            return tls
        if isinstance(error, requests.exceptions.Timeout):
            return ConfigError(URL, self._url, f"the server does not answer within {TIMEOUT_S:g} s")
        reason = str(getattr(next(iter(error.args), None), "reason", error))
        return ConfigError(URL, self._url, f"the server can't be reached ({reason.rpartition(': ')[2]})")

    def _error(self, response: requests.Response, operation: str) -> TallystreamError:
        status, message = response.status_code, self._secrets.redact(_message(response)).strip().rstrip(".")
        if status == 401:
            remedy = f"{self._url} rejects it (401): create a token of a service account under Administration"
            return ConfigError(TOKEN, "***", remedy)
        if status == 403:
            remedy = f"its service account may not {operation} (403: {message}): give it the role Admin"
            return ConfigError(TOKEN, "***", remedy)
        return ConfigError(URL, self._url, f"Grafana could not {operation} ({status}: {message})")


class _CertificateAdapter(HTTPAdapter):
    """Presents a client certificate whose key may have a password, which `Session.cert` does not support."""

    def __init__(self, certificate: ClientCertificate) -> None:
        self._context = create_urllib3_context()
        self._context.load_cert_chain(certificate.cert_file, certificate.key_file or None, certificate.key_password)
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Create the pool of connections with the certificate."""
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Create the pool of connections through a proxy with the certificate."""
        return super().proxy_manager_for(*args, ssl_context=self._context, **kwargs)


def _message(response: requests.Response) -> str:
    """Return Grafana's error message, or else the reason phrase of the status."""
    try:
        body = response.json()
    except requests.exceptions.JSONDecodeError:
        body = None
    return str(body.get("message") or response.reason) if isinstance(body, dict) else str(response.reason)


def _require_url(url: str) -> None:
    if "@" in url:
        raise ConfigError(URL, "***", f"remove user and password: the token is in {TOKEN}")
    if not is_http_url(url) or "?" in url or "#" in url:
        raise ConfigError(URL, url, "give a URL, as in https://grafana.example.org or http://localhost:3000")
