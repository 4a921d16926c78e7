"""Fixtures of the browser tests: the served page and a headless Chromium."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from support.commands import command
from support.page_history import History
from support.wait import wait_until
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Yield the system's Chromium, headless."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.skip(
            "no chromium on the PATH: the page is not tested; on Debian install it with `apt-get install chromium`"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, headless=True)
        yield browser
        browser.close()


WINDOW: dict[str, Any] = {"viewport": {"width": 1400, "height": 1700}, "timezone_id": "UTC"}


@pytest.fixture(scope="session")
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """The context of all tests without options of their own: it keeps the page's scripts from test to test."""
    context = chromium.new_context(**WINDOW)
    yield context
    context.close()


@pytest.fixture
def open_page(chromium: Browser, context: BrowserContext) -> Callable[..., AbstractContextManager[Page]]:
    """Return a function that opens a URL. At the end it checks that there was no error and no request to another host.

    An error that contains the text `expected` is allowed.
    """

    @contextmanager
    def opened(url: str, *, expected: str | None = None, **options: object) -> Iterator[Page]:
        problems: list[str] = []
        origin = url.partition("?")[0].rstrip("/")
        own = (origin, origin.replace("http", "ws"), "data:", "blob:")
        window = chromium.new_context(**WINDOW | options) if options else context
        page = window.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith(own) else problems.append(f"request to {request.url}"),
        )
        try:
            page.goto(url)
            yield page
        finally:
            for each in window.pages:
                each.close()
            window.clear_cookies()
            if window is not context:
                window.close()
        assert [problem for problem in problems if expected is None or expected not in problem] == []

    return opened


@contextmanager
def serving(folder: Path, store: str) -> Iterator[str]:
    """Serve the page over a store and yield its URL. Afterwards check that SIGTERM ends it with exit code 0."""
    ready, log = folder / "ready", folder / "page.log"
    ready.unlink(missing_ok=True)
    with log.open("wb") as output:
        words = command("page", "--store", store, "--port", "0", "--ready-file", str(ready))
        process = subprocess.Popen(words, stdout=output, stderr=output)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, 60, "the page answers")
        assert process.poll() is None, log.read_text()
        yield ready.read_text(encoding="utf-8")
    finally:
        process.terminate()
        code = process.wait(30)
    assert code == 0, log.read_text()
    # Streamlit may log a traceback of a connection that the browser closed, but there is none of the page's own code.
    assert "dashboards/page" not in log.read_text()


@pytest.fixture
def serve(tmp_path: Path) -> Callable[[str], AbstractContextManager[str]]:
    """Return a function that serves the page over a store."""
    return lambda store: serving(tmp_path, store)


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Serve ten minutes of history to tests that only read.

    Yield a function that returns the URL of a view, at the end of the history or `ago_s` before it.
    """
    folder = tmp_path_factory.mktemp("past")
    spec = f"local:{folder / 'store.db'}"
    sink = open_sink(StoreSettings.parse(spec))
    sink.setup()
    history = History(sink)
    sink.close()
    with serving(folder, spec) as url:

        def address(*, ago_s: int = 0, **selected: str) -> str:
            at = datetime.fromtimestamp(history.last_ms / 1000 - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            return f"{url}/?{urlencode({**selected, 'at': at})}"

        yield address
