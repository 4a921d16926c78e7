"""Grafana's HTTP API through grafana-client; whatever goes wrong becomes one sentence, without a secret."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.sinks.address import NO_CERTIFICATE, ClientCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from tallystream_dashboards.grafana.push.secrets import Secrets

T = TypeVar("T")

TOKEN = "GRAFANA_TOKEN"  # noqa: S105 (the name of an environment variable, not a secret)
URL = "--grafana-url"
TIMEOUT_S = 15.0
GONE = 404


class AbsentError(TallystreamError):
    """What was asked for is not there."""


class Grafana:
    """A Grafana server. Every call of `api` goes through `call`.

    Args:
        url: the server's address, with the path that it is served below, if any.
        token: of a service account.
        secrets: what no message may contain.
        ca_file: certificates to trust instead of the system's; None: the system's.
        client: the certificate that the server is shown.

    Raises:
        ConfigError: the address can't be one, or grafana-client is not installed.
    """

    def __init__(
        self,
        url: str,
        token: str,
        secrets: Secrets,
        ca_file: Path | None = None,
        client: ClientCertificate = NO_CERTIFICATE,
    ) -> None:
        parts = _checked(url)
        try:
            grafana_client = importlib.import_module("grafana_client")
        except ImportError as error:
            remedy = "install it: pip install 'tallystream-cli[grafana]'; docs/grafana-push.md tells how"
            raise ConfigError("grafana-client", "not installed", remedy) from error
        if ca_file is not None and not ca_file.is_file():
            raise ConfigError("--ca-file", str(ca_file), "name a file with certificates in PEM form")
        self.url, self._secrets = url, secrets
        path = parts.path.strip("/")
        self.api: Any = grafana_client.GrafanaApi(
            token,
            host=f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname,
            port=parts.port,
            url_path_prefix=f"{path}/" if path else "",
            protocol=parts.scheme,
            verify=True if ca_file is None else str(ca_file),
            timeout=TIMEOUT_S,
        )
        # A redirected write would become a read, and look like a success.
        self.api.client.s.max_redirects = 0
        if client.cert_file:
            files = (client.cert_file, client.key_file or client.cert_file)
            self.api.client.s.cert = (*files, client.key_password) if client.key_password else files

    def call(self, doing: str, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call a method of grafana-client; `doing` is what it does, as the end of "it may not …".

        Raises:
            ConfigError: the address, the certificate or the token is at fault, or something else in the request.
            AbsentError: Grafana answers 404.
        """
        exceptions = importlib.import_module("niquests.exceptions")
        errors = importlib.import_module("grafana_client.client")
        try:
            return function(*arguments, **named)
        except errors.GrafanaException as error:
            raise self._refused(error.status_code, str(error.message), doing) from None
        except exceptions.TooManyRedirects:
            raise ConfigError(URL, self.url, "it redirects to another address: give that one") from None
        except exceptions.SSLError as error:
            why = self._short(error)
            if "ALERT" in why:
                remedy = f"it refuses us ({why}); name a certificate in GRAFANA_CERT_FILE, its key in GRAFANA_KEY_FILE"
                raise ConfigError(URL, self.url, remedy) from None
            remedy = f"its certificate is not trusted ({why}); --ca-file names the one to trust"
            raise ConfigError(URL, self.url, remedy) from None
        except exceptions.JSONDecodeError:
            raise ConfigError(URL, self.url, "what answers there is no Grafana: its answer is no JSON") from None
        except exceptions.RequestException as error:
            raise ConfigError(URL, self.url, f"nothing answers there ({self._short(error)})") from None

    def connect(self) -> Collection[str] | None:
        """Look whether a Grafana answers and takes the token; return what the token may do, None if it does not say.

        Raises:
            ConfigError: it does not.
        """
        try:
            health = self.call("ask whether it is well", self.api.client.GET, "/health")
        except AbsentError:
            health = None
        if not isinstance(health, dict) or "database" not in health:
            remedy = "what answers there is no Grafana; is the path missing that it is served below, as in /grafana?"
            raise ConfigError(URL, self.url, remedy)
        try:
            said = self.call("see what it may do", self.api.client.GET, "/access-control/user/permissions")
        except AbsentError:
            return None
        return said if isinstance(said, dict) else None

    def _refused(self, status: int, message: str, doing: str) -> TallystreamError:
        said = self._secrets.hidden(message).strip().rstrip(".")
        if status == 401:
            remedy = f"{self.url} refuses it (401): make a token for a service account under Administration"
            return ConfigError(TOKEN, "***", remedy)
        if status == 403:
            return ConfigError(
                TOKEN, "***", f"its service account may not {doing} (403: {said}): give it the role Admin"
            )
        if status == GONE:
            return AbsentError(f"{doing}: {said}")
        if status == 0:
            return ConfigError(URL, self.url, f"it does not answer within {TIMEOUT_S:g} s")
        return ConfigError(URL, self.url, f"Grafana could not {doing}: {said}")

    def _short(self, error: BaseException) -> str:
        """Return the innermost reason of a failed connection."""
        while (inner := _inner(error)) is not None:
            error = inner
        # What went wrong, without the Python object that it happened to.
        return re.sub(r"^<[^>]*>: ", "", self._secrets.hidden(str(error)).strip()).rstrip(".")


def _inner(error: BaseException) -> BaseException | None:
    parts = (getattr(error, "reason", None), *error.args)
    return next((one for one in parts if isinstance(one, BaseException) and one is not error), None)


def _checked(url: str) -> Any:
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        good, parts = False, urlsplit("")
    if parts.username or parts.password:
        raise ConfigError(URL, f"{parts.scheme}://***@…", f"leave user and password out: the token is in {TOKEN}")
    if not good or parts.query or parts.fragment:
        raise ConfigError(URL, url, "give an address, as in https://grafana.example.org or http://localhost:3000")
    return parts
