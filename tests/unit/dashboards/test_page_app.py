"""The page's script, run by Streamlit's test runner."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from streamlit.runtime.context import ContextProxy
from streamlit.testing.v1 import AppTest

from support.page_history import History
from tallystream_aggregator.sinks import stores
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_dashboards import page
from tallystream_dashboards.data.home import AppLine, Home
from tallystream_dashboards.data.lines import Line
from tallystream_dashboards.data.stored import LIMIT_MS, Stored
from tallystream_dashboards.page import PageSettings, banner
from tallystream_dashboards.page import settings as page_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_aggregator.sinks.sqlite.sink import LocalStore

APP = Path(page.__file__).with_name("app.py")


@pytest.fixture
def opened(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """Return a function that opens the page with parameters, over ten minutes of history."""
    History(store)
    settings = StoreSettings.parse(f"local:{tmp_path / 'store.db'}")
    monkeypatch.setattr(page_settings, "served", PageSettings(store=settings))

    def open_page(**params: str) -> AppTest:
        test = AppTest.from_file(APP, default_timeout=60)
        test.query_params.update(params)
        return test.run()

    return open_page


@pytest.mark.parametrize("zone", ["Etc/Unknown", "../zone", "Europe", "Asia/Tokyo", ""])
def test_the_browser_names_its_time_zone(
    opened: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """Times are in the browser's zone. If the server does not know it, they are in UTC."""
    monkeypatch.setattr(ContextProxy, "timezone", property(lambda _: zone))
    shown = opened(view="groups")
    assert not shown.exception
    (as_of,) = (one.value for one in shown.caption if one.value.startswith("Data as of"))
    known = ZoneInfo("Asia/Tokyo") if zone == "Asia/Tokyo" else UTC
    now = datetime.now(known)
    assert {f"{now - timedelta(minutes=ago):%H:%M}" for ago in range(3)} & set(re.findall(r"\d\d:\d\d", as_of))


@pytest.mark.parametrize(
    "params",
    [
        {"view": "groups", "group": "billing"},
        {"view": "groups", "group": "unknown"},
        {"view": "compare", "app": "orders"},
        {"view": "compare", "app": "billing"},
        {"view": "runbook", "section": "unknown"},
        {"view": "groups", "at": "2026-01-01T00:00"},
        {"view": "groups", "at": "1970-01-01T00:00"},
        {"view": "metrics", "at": "1970-01-01T00:00"},
    ],
)
def test_every_view_is_drawn(opened: Callable[..., AppTest], params: dict[str, str]) -> None:
    """Each view is drawn without an exception, also without data."""
    shown = opened(**params)
    assert not shown.exception
    assert shown.caption or shown.info


@pytest.mark.parametrize("late_ms", [0, 1])
def test_the_applications_say_how_late_lost_and_twice_are_at_the_end_of_the_period(late_ms: int) -> None:
    """The newest round, of which the rates are, may be a minute older than the end of the period."""

    def script(home: object, now_ms: int) -> None:
        from datetime import UTC

        from tallystream_dashboards.data.home import Home
        from tallystream_dashboards.page.url_state import Selection
        from tallystream_dashboards.page.views.home import draw_home

        assert isinstance(home, Home)
        draw_home(home, Selection(), now_ms=now_ms, zone=UTC)

    now_ms = 1_700_000_000_000
    app = AppLine("shop", None, None, Line("shop"), None, None, None, None)
    stored = Stored(now_ms - LIMIT_MS - late_ms, ("tallystream-shipper",))
    shown = AppTest.from_function(script, args=(Home((app,), now_ms - 60_000, stored), now_ms)).run()
    assert not shown.exception
    expected = ["Lost and twice: As of 22:10:49 UTC: tallystream-shipper is behind."] if late_ms else []
    assert [one.value for one in shown.caption] == expected


def test_nothing_is_read_while_the_page_is_drawn(
    opened: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each view the store is opened once, and it is closed before the first part is drawn."""
    done: list[str] = []

    def reader(settings: StoreSettings) -> PointReader:
        found = open_store(settings)
        close = found.close
        done.append("open")
        monkeypatch.setattr(found, "close", lambda: (done.append("close"), close()))
        return found

    monkeypatch.setattr(stores, "open_store", reader)
    monkeypatch.setattr(banner, "draw_banner", lambda *_, **__: done.append("draw"))
    for view in ("home", "groups", "metrics", "compare", "runbook"):
        done.clear()
        assert not opened(view=view).exception
        assert done == ["open", "close", "draw"]
