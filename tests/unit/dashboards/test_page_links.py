"""The page's selection in its address, and the runbook that it links to."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest

from support.malformed import INVALID_TIMES
from tallystream_dashboards.grafana.generate import alert_rules
from tallystream_dashboards.page.url_state import Selection, chosen_moment, options, parse, refresh_every
from tallystream_dashboards.page.views import runbook


def test_a_selection_is_restored_from_the_address() -> None:
    """The parameters of a selection give the same selection."""
    for chosen in (
        Selection(view="metrics", app="my app", metric="a.b", range="6h"),
        Selection(view="groups", group="g&h", at="2026-11-20T03:12"),
        Selection(view="groups", range="7d", at="2026-11-20T03:12:30"),
        Selection(view="compare", app="x", sent="a/b"),
    ):
        assert parse(chosen.params()) == chosen
    assert parse(Selection().params()) == Selection()


def test_a_period_of_the_past_may_end_when_the_epoch_begins() -> None:
    """Epoch 0 is a moment as any other, not the present."""
    assert parse({"at": "1970-01-01T00:00"}).period(1_795_168_800_000) == (-900_000, 0, 1)


def test_wrong_parameters_are_ignored() -> None:
    """An unknown range, view or time and an empty name give the defaults. An app alone selects the view Metrics."""
    assert parse({"range": "eternity", "app": "", "view": "x", "at": "noon"}) == Selection()
    assert parse({"app": "orders"}).view == "metrics"
    assert parse({"at": "2026-11-20T12:00+02:00"}).at_ms == 1_795_168_800_000
    assert [parse({"at": text}) for text in INVALID_TIMES] == [Selection()] * len(INVALID_TIMES)


def test_a_name_without_data_can_be_selected() -> None:
    """The requested name is among the choices, also if the store does not have it yet."""
    assert options(["b", "a"], "c") == ["a", "b", "c"]
    assert options(["b", "a"], "b") == ["a", "b"]


def test_long_periods_refresh_slowly() -> None:
    """15 minutes refresh at the chosen interval, a day every 48 s."""
    assert (refresh_every(2, 900), refresh_every(2, 86_400), refresh_every(60, 86_400)) == (2, 48, 60)


def test_the_seconds_of_a_link_are_kept() -> None:
    """A link may have seconds, the field has minutes. The seconds are kept until another minute is chosen."""
    minute = datetime(2026, 11, 20, 3, 12)  # noqa: DTZ001 (as the field returns it)
    assert chosen_moment(minute, "2026-11-20T03:12:44") == "2026-11-20T03:12:44"
    assert chosen_moment(minute, "2026-11-20T03:13:44") == "2026-11-20T03:12"
    assert chosen_moment(minute, None) == "2026-11-20T03:12"


def test_the_page_has_the_runbook() -> None:
    """The page's copy is that of the docs, it has a section for every rule, and no link leads to a page of the docs."""
    docs = Path(__file__).parents[3] / "docs" / "runbook.md"
    assert runbook.TEXT.read_bytes() == docs.read_bytes(), f"run: cp docs/runbook.md {runbook.TEXT}"
    sections = runbook.sections()
    assert alert_rules().keys() <= set(sections)
    links = [link for text in sections.values() for link in re.findall(r"\]\(([^)]+)\)", text)]
    assert links
    assert [link for link in links if not re.fullmatch(r"\?view=runbook&section=[\w-]+", link)] == []
    assert {link.partition("section=")[2] for link in links} <= set(sections)


@pytest.mark.parametrize("slug", alert_rules())
def test_what_to_do_needs_no_grafana(slug: str) -> None:
    """The page and `tallystream alert` say it to people who have none."""
    assert "dashboard" not in alert_rules()[slug].action.lower()
