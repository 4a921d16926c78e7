"""Grafana's HTTP API: a call and its answer. Whatever goes wrong becomes one sentence, without a secret."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.sinks.address import NO_CERTIFICATE, ClientCertificate

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from tallystream_dashboards.grafana.push.secrets import Secrets

TOKEN = "GRAFANA_TOKEN"  # noqa: S105 (the name of an environment variable, not a secret)
URL = "--grafana-url"
TIMEOUT_S = 15.0
GONE = 404


class AbsentError(TallystreamError):
    """What was asked for is not there."""


class Grafana:
    """A Grafana server.

    Args:
        url: the server's address, with the path that it is served below, if any.
        token: of a service account.
        secrets: what no message may contain.
        ca_file: certificates to trust instead of the public authorities; None: those.
        client: the certificate that the server is shown.

    Raises:
        ConfigError: the address can't be one, or `ca_file` is no file.
    """

    def __init__(
        self,
        url: str,
        token: str,
        secrets: Secrets,
        ca_file: Path | None = None,
        client: ClientCertificate = NO_CERTIFICATE,
    ) -> None:
        _require_address(url)
        if ca_file is not None and not ca_file.is_file():
            raise ConfigError("--ca-file", str(ca_file), "name a file with certificates in PEM form")
        self.url, self._secrets = url, secrets
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {token}"
        # Given with each request: of a session, REQUESTS_CA_BUNDLE would go before it.
        self._verify = True if ca_file is None else str(ca_file)
        if client.cert_file:
            self._session.mount("https://", _WithCertificate(client))

    def ask(
        self,
        doing: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        editable: bool = False,
    ) -> Any:
        """Send a request to a path below `/api`, and return the JSON of the answer, None where it has none.

        Args:
            doing: what the request does, as the end of "it may not …".
            method: of HTTP.
            path: below `/api`; what is in it is encoded already.
            body: is sent as JSON.
            query: is encoded here.
            editable: people may edit in Grafana what is written to its provisioning API.

        Raises:
            ConfigError: the address, the certificate or the token is at fault, or something else in the request.
            AbsentError: Grafana answers 404.
        """
        try:
            answer = self._session.request(
                method,
                f"{self.url.rstrip('/')}/api{path}",
                json=body,
                params=query,
                headers={"X-Disable-Provenance": "true"} if editable else {},
                timeout=TIMEOUT_S,
                verify=self._verify,
                allow_redirects=False,  # a redirected write would become a read, and look like a success
            )
        except requests.exceptions.SSLError as error:
            why = self._short(error)
            if "ALERT" in why:
                remedy = f"it rejects us ({why}); name a certificate in GRAFANA_CERT_FILE, its key in GRAFANA_KEY_FILE"
                raise ConfigError(URL, self.url, remedy) from None
            remedy = f"its certificate is not trusted ({why}); --ca-file names the one to trust"
            raise ConfigError(URL, self.url, remedy) from None
        except requests.exceptions.Timeout:
            raise ConfigError(URL, self.url, f"it does not answer within {TIMEOUT_S:g} s") from None
        except requests.exceptions.RequestException as error:
            raise ConfigError(URL, self.url, f"nothing answers there ({self._short(error)})") from None
        if answer.is_redirect:
            raise ConfigError(URL, self.url, "it redirects to another address: give that one")
        if answer.status_code >= 400:
            raise self._refused(answer.status_code, _message(answer), doing)
        if not answer.content:
            return None
        try:
            return answer.json()
        except requests.exceptions.JSONDecodeError:
            raise ConfigError(URL, self.url, "what answers there is no Grafana: its answer is no JSON") from None

    def find(self, doing: str, path: str, **options: Any) -> Any:
        """Return what is at a path, None where Grafana has nothing there.

        Raises:
            ConfigError: as `ask`.
        """
        try:
            return self.ask(doing, "GET", path, **options)
        except AbsentError:
            return None

    def connect(self) -> Collection[str] | None:
        """Look whether a Grafana answers and takes the token; return what the token may do, None if it does not say.

        Raises:
            ConfigError: it does not.
        """
        health = self.find("ask whether it is well", "/health")
        if not isinstance(health, dict) or "database" not in health:
            remedy = "what answers there is no Grafana; is the path missing that it is served below, as in /grafana?"
            raise ConfigError(URL, self.url, remedy)
        answer = self.find("see what it may do", "/access-control/user/permissions")
        return answer if isinstance(answer, dict) else None

    def _refused(self, status: int, message: str, doing: str) -> TallystreamError:
        answer = self._secrets.hidden(message).strip().rstrip(".")
        if status == 401:
            remedy = f"{self.url} refuses it (401): make a token for a service account under Administration"
            return ConfigError(TOKEN, "***", remedy)
        if status == 403:
            return ConfigError(
                TOKEN, "***", f"its service account may not {doing} (403: {answer}): give it the role Admin"
            )
        if status == GONE:
            return AbsentError(f"{doing}: {answer}")
        return ConfigError(URL, self.url, f"Grafana could not {doing} ({status}: {answer})")

    def _short(self, error: BaseException) -> str:
        """Return the innermost reason of a failed connection."""
        while (inner := _inner(error)) is not None:
            error = inner
        # What went wrong, without the Python object that it happened to.
        return re.sub(r"^<[^>]*>: ", "", self._secrets.hidden(str(error)).strip()).rstrip(".")


class _WithCertificate(HTTPAdapter):
    """Shows the server a certificate, whose key may have a password: `Session.cert` takes none."""

    def __init__(self, client: ClientCertificate) -> None:
        self._context = create_urllib3_context()
        self._context.load_cert_chain(client.cert_file, client.key_file or None, client.key_password)
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        """Make the connections with the certificate."""
        super().init_poolmanager(*arguments, ssl_context=self._context, **named)

    def proxy_manager_for(self, *arguments: Any, **named: Any) -> Any:
        """Make the connections through a proxy with the certificate."""
        return super().proxy_manager_for(*arguments, ssl_context=self._context, **named)


def _message(answer: requests.Response) -> str:
    """Return what Grafana says of an error, else the name of its status."""
    try:
        found = answer.json()
    except requests.exceptions.JSONDecodeError:
        found = None
    return str(found.get("message") or answer.reason) if isinstance(found, dict) else str(answer.reason)


def _inner(error: BaseException) -> BaseException | None:
    parts = (getattr(error, "reason", None), *error.args)
    return next((one for one in parts if isinstance(one, BaseException) and one is not error), None)


def _require_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        good, parts = False, urlsplit("")
    if parts.username or parts.password:
        raise ConfigError(URL, f"{parts.scheme}://***@…", f"leave user and password out: the token is in {TOKEN}")
    if not good or parts.query or parts.fragment:
        raise ConfigError(URL, url, "give an address, as in https://grafana.example.org or http://localhost:3000")
