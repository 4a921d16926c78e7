"""The page's script, run by Streamlit's own test runner: what it sends to a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from streamlit.testing.v1 import AppTest

from support.history import History
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink
from tallystream_dashboards import page
from tallystream_dashboards.page import PageSettings, serving

if TYPE_CHECKING:
    from collections.abc import Callable

APP = Path(page.__file__).with_name("app.py")


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """Return the page over ten minutes of history, opened by a link with these parameters."""
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}")
    sink = open_sink(store)
    sink.setup()
    History(sink)
    sink.close()
    monkeypatch.setattr(serving, "settings", PageSettings(store=store))

    def open_page(**params: str) -> AppTest:
        test = AppTest.from_file(APP, default_timeout=60)
        test.query_params.update(params)
        return test.run()

    return open_page


def test_another_app_begins_with_a_metric_of_its_own(opened: Callable[..., AppTest]) -> None:
    """The other app's metric does not stay chosen, in the box or in the tile."""
    shown = opened(view="metrics", app="billing", metric="invoices")
    shown.selectbox(key="app").select("orders").run()
    (metric,) = (box for box in shown.selectbox if box.label == "Metric")
    assert metric.value == "records.processed"
    assert shown.metric[0].label == "Sum of records.processed"


def test_a_timer_shows_its_calls_and_their_mean(opened: Callable[..., AppTest]) -> None:
    """A timer's number is not called a sum, and its mean is a time."""
    shown = opened(view="metrics", app="orders", metric="batch")
    tiles = {tile.label: tile.value for tile in shown.metric}
    assert (tiles["Calls of batch"], tiles["Mean of batch"]) == ("640", "12.5 ms")


def test_a_group_that_never_catches_up(opened: Callable[..., AppTest]) -> None:
    """The tile says it in words, and what the lag in time is."""
    shown = opened(view="groups", group="audit")
    (tile,) = (one for one in shown.metric if one.label.startswith("Catches up"))
    assert (tile.label, tile.value, tile.delta) == ("Catches up", "never", "at this rate")
    assert "Time lag" in [one.label for one in shown.metric]
