"""A client of Grafana's HTTP API. Every failure becomes an error of one sentence without secrets."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import urllib3

from tallystream.errors import ConfigError, TallystreamError
from tallystream.validation import header_token
from tallystream_aggregator.sinks.http import connection_problem, is_http_url, secret_file, tls_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOKEN = "GRAFANA_TOKEN"  # noqa: S105 (the name of an environment variable, not a secret)
URL = "--grafana-url"
TIMEOUT_S = 15.0


class Grafana:
    """A Grafana server.

    Args:
        url: the server's URL, including the path of a reverse proxy.
        env: the environment, with the token of a service account.
        ca_file: CA certificates to trust instead of the system's.

    Raises:
        ConfigError: the URL or the token can't be used, or `ca_file` does not exist.
    """

    def __init__(self, url: str, env: Mapping[str, str], ca_file: Path | None = None) -> None:
        _require_url(url)
        if ca_file is not None and not os.path.isfile(ca_file):  # noqa: PTH113 (never raises)
            raise ConfigError("--ca-file", str(ca_file), "name a file with certificates in PEM form")
        self._url, self._ca_file = url, "" if ca_file is None else str(ca_file)
        self._token = header_token(TOKEN, _token(env))
        self._pool = urllib3.PoolManager(
            retries=False,
            timeout=TIMEOUT_S,
            headers={"Authorization": f"Bearer {self._token}"},
            ca_certs=self._ca_file or None,
            cert_reqs="CERT_REQUIRED",
        )

    def request(self, operation: str, method: str, path: str, body: Any = None) -> Any:
        """Send a request, and return the JSON of the response. None: it is empty, or Grafana returns 404 for a GET.

        Args:
            operation: what the request does, for error messages: the end of "it may not …".
            method: the HTTP method.
            path: the path below `/api`, URL-encoded.
            body: is sent as JSON.

        Raises:
            ConfigError: the URL or the token can't be used, or Grafana rejects the request.
        """
        try:
            # A redirected POST would become a GET, which would look like a success.
            response = self._pool.request(method, f"{self._url.rstrip('/')}/api{path}", json=body, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            raise self._no_answer(error) from None
        if response.get_redirect_location():
            raise ConfigError(URL, self._url, "it redirects to another URL: give that one")
        if method == "GET" and response.status == 404:
            return None
        if response.status >= 400:
            raise self._error(response, operation)
        if not response.data:
            return None
        try:
            return response.json()
        except (json.JSONDecodeError, UnicodeDecodeError):
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

    def _no_answer(self, error: urllib3.exceptions.HTTPError) -> ConfigError:
        untrusted = tls_error(error, self._url, "--ca-file", self._ca_file)
        return untrusted or ConfigError(URL, self._url, f"the server can't be reached ({connection_problem(error)})")

    def _error(self, response: urllib3.BaseHTTPResponse, operation: str) -> TallystreamError:
        status, message = response.status, _message(response).replace(self._token, "***").strip().rstrip(".")
        if status == 401:
            remedy = f"{self._url} rejects it (401): create a token of a service account under Administration"
            return ConfigError(TOKEN, "***", remedy)
        if status == 403:
            remedy = f"its service account may not {operation} (403: {message}): give it the role Admin"
            return ConfigError(TOKEN, "***", remedy)
        return ConfigError(URL, self._url, f"Grafana could not {operation} ({status}: {message})")


def _message(response: urllib3.BaseHTTPResponse) -> str:
    """Return Grafana's error message, or else the reason phrase of the status."""
    try:
        body = response.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        body = None
    return str((isinstance(body, dict) and body.get("message")) or response.reason)


def _token(env: Mapping[str, str]) -> str:
    """Return the token from the environment, or from the file that it names."""
    token = env.get(TOKEN, "").strip() or secret_file(f"{TOKEN}_FILE", env)
    if not token:
        remedy = f"set it to the token of a service account, or name a file that contains it in {TOKEN}_FILE"
        raise ConfigError(TOKEN, "", remedy)
    return token


def _require_url(url: str) -> None:
    if "@" in url:
        raise ConfigError(URL, "***", f"remove user and password: the token is in {TOKEN}")
    if not is_http_url(url) or "?" in url or "#" in url:
        raise ConfigError(URL, url, "give a URL, as in https://grafana.example.org or http://localhost:3000")
