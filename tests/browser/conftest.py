"""The real page, and a real Chromium that looks at it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.history import History
from support.many_series import write_many_series
from support.wait import wait_until
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from playwright.sync_api import Browser, Page

SERVE = Path(__file__).with_name("serve_page.py")
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
    """A headless Chromium of the system's."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.skip(
            "no chromium on the PATH: the page is not looked at; on Debian `apt-get install chromium` brings it"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, headless=True)
        yield browser
        browser.close()


@pytest.fixture
def look(chromium: Browser) -> Callable[..., AbstractContextManager[Page]]:
    """Look at an address: at the end the page has had no error, and asked no other host for anything.

    An error that holds the text `expected` is none.
    """

    @contextmanager
    def looking(url: str, *, expected: str | None = None, **options: object) -> Iterator[Page]:
        problems: list[str] = []
        origin = url.partition("?")[0].rstrip("/")
        own = (origin, origin.replace("http", "ws"), "data:", "blob:")
        window = {"viewport": {"width": 1400, "height": 1700}, "timezone_id": "UTC"}
        context = chromium.new_context(**window | options)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(own) else problems.append(f"asked {asked.url}"))
        try:
            page.goto(url)
            yield page
        finally:
            context.close()
        assert [problem for problem in problems if expected is None or expected not in problem] == []

    return looking


@contextmanager
def serving(folder: Path, store: str) -> Iterator[str]:
    """Serve the page over a store: yields its address, and wants an orderly end on SIGTERM."""
    ready, log = folder / "ready", folder / "page.log"
    ready.unlink(missing_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(SERVE), store, str(ready)], stdout=output, stderr=output, env=dict(os.environ)
        )
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, 60, "the page answers")
        assert process.poll() is None, log.read_text()
        yield ready.read_text(encoding="utf-8")
    finally:
        process.terminate()
        code = process.wait(30)
    assert code == 0, log.read_text()
    # Streamlit may trace a connection that the browser closed; of the page's own code there must be no trace.
    assert "dashboards/page" not in log.read_text()


@pytest.fixture
def serve(tmp_path: Path) -> Callable[[str], AbstractContextManager[str]]:
    """Serve the page over a store of this test's own."""
    return lambda store: serving(tmp_path, store)


@pytest.fixture(scope="session")
def page_of_the_past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Serve ten minutes of history to all tests that only look: yields the address, and the last moment, epoch ms."""
    folder = tmp_path_factory.mktemp("past")
    spec = f"local:{folder / 'store.db'}"
    sink = open_sink(StoreSettings.parse(spec))
    sink.setup()
    past = History(sink)
    sink.close()
    with serving(folder, spec) as url:
        yield url, past.last_ms


@pytest.fixture(scope="session")
def crowded_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Serve apps of 1, 20 and 60 instances and 40 groups: yields the address, and the last moment, epoch ms."""
    folder = tmp_path_factory.mktemp("crowd")
    spec = f"local:{folder / 'store.db'}"
    sink = open_sink(StoreSettings.parse(spec))
    sink.setup()
    last_ms = write_many_series(sink, groups=40)
    sink.close()
    with serving(folder, spec) as url:
        yield url, last_ms
