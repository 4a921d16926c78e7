"""Run Streamlit with the page in this process, and stop it on SIGTERM or Ctrl-C."""

from __future__ import annotations

import contextlib
import http.client
import logging
import signal
import socket
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator.http_server import AllowedHosts
from tallystream_dashboards.page import settings as page_settings
from tallystream_dashboards.page.server.access import AccessMiddleware

if TYPE_CHECKING:
    from tallystream_dashboards.page.settings import PageSettings

log = logging.getLogger(__name__)

APP = Path(__file__).parents[1] / "app.py"
MAX_MESSAGE_MB = 16
"""The largest message in either direction, in MB: about ten times the size of a view."""


def run(settings: PageSettings) -> int:
    """Serve the page until SIGTERM or Ctrl-C, then return 0; must be called in the main thread.

    If the store is unavailable, the page says so and reads it again at every refresh.

    Raises:
        ConfigError: Streamlit is not installed, or the address or port can't be listened on.
    """
    if find_spec("streamlit") is None:
        raise ConfigError("streamlit", "not installed", "pip install streamlit, or use the image tallystream-page")
    from starlette.middleware import Middleware
    from streamlit.starlette import App

    port = _free_port(settings)
    url = f"http://{_host(settings.address)}:{port}"
    page_settings.served = settings
    hosts = AllowedHosts(settings.address, has_password=bool(settings.password))
    app = App(
        APP,
        middleware=[Middleware(AccessMiddleware, password=settings.password, hosts=hosts)],
    )
    stopped = threading.Event()
    announcer = threading.Thread(target=_announce, args=(settings, port, url, stopped), name="page-ready", daemon=True)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    announcer.start()
    try:
        # At either signal the server closes its connections, and then raises the signal again.
        with contextlib.suppress(KeyboardInterrupt):
            app.run(config=options(settings, port))
    finally:
        signal.signal(signal.SIGTERM, previous)
        stopped.set()
        announcer.join(timeout=5)
    return 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def options(settings: PageSettings, port: int) -> dict[str, object]:
    """Return Streamlit's options: no telemetry, no browser, no file watcher, no developer menu, both themes."""
    return {
        "server.address": settings.address,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.runOnSave": False,
        "server.maxUploadSize": 1,
        "server.maxMessageSize": MAX_MESSAGE_MB,
        "browser.gatherUsageStats": False,
        "browser.serverAddress": settings.address,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "logger.level": "warning",
        "logger.hideWelcomeMessage": True,
        "theme.light.primaryColor": "#0b6bcb",
        "theme.dark.primaryColor": "#5aa9f0",
    }


def _announce(settings: PageSettings, port: int, url: str, stopped: threading.Event) -> None:
    while not stopped.wait(0.1):
        if _healthy(settings.address, port):
            log.info("the page is at %s", url)
            if settings.ready_file is not None:
                # The file is renamed into place, so that it always has the complete address.
                partial = settings.ready_file.with_name(settings.ready_file.name + ".partial")
                partial.write_text(url, encoding="utf-8")
                partial.replace(settings.ready_file)
            return


def _healthy(address: str, port: int) -> bool:
    connection = http.client.HTTPConnection(_reachable(address), port, timeout=2)
    try:
        connection.request("GET", "/_stcore/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _free_port(settings: PageSettings) -> int:
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.address, settings.port))
        except OSError as error:
            address = f"{settings.address}:{settings.port}"
            raise ConfigError(
                "--address and --port", address, f"choose others; the system reports: {error.strerror or error}"
            ) from error
        return int(probe.getsockname()[1])


def _reachable(address: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 - compared, not listened on


def _host(address: str) -> str:
    reachable = _reachable(address)
    return f"[{reachable}]" if ":" in reachable else reachable
