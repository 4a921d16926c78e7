"""What the page links to: Grafana, the runbook, and what a search finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.lag import Rounds, group, round_of
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader, open_sink
from tallystream_dashboards.data.search import MAX_FOUND, Found, read_names, search
from tallystream_dashboards.grafana.alerts.rules import RULES
from tallystream_dashboards.page import PageSettings, runbook
from tallystream_dashboards.page.links import grafana_link
from tallystream_dashboards.page.url_state import Selection

STORE = StoreSettings.parse("local:x.db")
GRAFANA = PageSettings(store=STORE, grafana_url="https://g.example/sub/", grafana_uid_prefix="prod")
NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("selection", "link"),
    [
        (Selection(view="groups"), "prod-lag?from=now-15m&to=now"),
        (Selection(view="groups", group="a b&c"), "prod-lag?var-group=a+b%26c&from=now-15m&to=now"),
        (Selection(view="pipeline", range="7d"), "prod-pipeline?from=now-7d&to=now"),
        (
            Selection(view="metrics", app="a", metric="m", at="2023-11-14T22:13:20"),
            f"prod-metric?var-app=a&var-metric=m&from={NOW - 900_000}&to={NOW}",
        ),
        (Selection(view="twice", app="a", metric="m"), "prod-metric?var-app=a&var-metric=m&from=now-15m&to=now"),
    ],
)
def test_grafana_shows_the_same_at_the_same_time(selection: Selection, link: str) -> None:
    """The link names the dashboard, its variables and the period."""
    assert grafana_link(GRAFANA, selection) == f"https://g.example/sub/d/{link}"


@pytest.mark.parametrize("option", ["grafana_url", "runbook_url"])
@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "grafana.example", "http://[::1", "http://g:x", "file:///etc/passwd"]
)
def test_only_web_addresses_are_linked(option: str, url: str) -> None:
    """An address that is not of the web is refused when the page starts."""
    with pytest.raises(ConfigError, match=f"--{option.replace('_', '-')}"):
        PageSettings(store=STORE, **{option: url})  # type: ignore[arg-type]  # the two options are texts


def test_the_page_has_the_runbook() -> None:
    """The page's copy is that of the docs, it has a section for every rule, and no link leads to a page of the docs."""
    docs = Path(__file__).parents[3] / "docs" / "runbook.md"
    assert runbook.TEXT.read_bytes() == docs.read_bytes(), f"run: cp docs/runbook.md {runbook.TEXT}"
    sections = runbook.sections()
    assert {rule.slug for rule in RULES} <= set(sections)
    links = [link for text in sections.values() for link in re.findall(r"\]\(([^)]+)\)", text)]
    assert links
    assert [link for link in links if not re.fullmatch(r"\?view=runbook&section=[\w-]+", link)] == []
    assert {link.partition("section=")[2] for link in links} <= set(sections)


def test_every_kind_of_name_is_found(tmp_path: Path) -> None:
    """A part of a name finds groups, topics, apps, metrics and instances, in any case, and where each is shown."""
    settings = StoreSettings.parse(f"local:{tmp_path / 'store.db'}", retention_days=0)
    sink = open_sink(settings)
    sink.setup()
    sink.write(Rounds().points(round_of(group("Orders-billing", (1, 2), topic="orders")), NOW - 1000))
    tags = {"app": "orders-app", "metric_type": "counter"}
    sink.write([Point("orders.read", tags, {"count": 1, "instances": 1, "lives": 1}, NOW - 90_000_000)])
    row = {"count": 1, "life": "a"}
    sink.write([Point("instance:orders.read", tags | {"instance": "orders-1"}, row, NOW - 1000)])
    sink.close()
    reader = open_reader(settings)
    names = read_names(reader, at_ms=NOW)
    reader.close()
    found, more = search(names, " ORDERS")
    assert more == 0
    assert {(one.kind, one.name, one.of): dict(one.params) for one in found} == {
        ("topic", "orders", "read by Orders-billing"): {"view": "groups", "group": "Orders-billing"},
        ("instance", "orders-1", "of orders-app"): {"view": "metrics", "app": "orders-app", "metric": "orders.read"},
        ("app", "orders-app", ""): {"view": "metrics", "app": "orders-app"},
        ("metric", "orders.read", "of orders-app"): {"view": "metrics", "app": "orders-app", "metric": "orders.read"},
        ("group", "Orders-billing", ""): {"view": "groups", "group": "Orders-billing"},
    }
    assert [one.name for one in search(names, "billing")[0]] == ["Orders-billing"]
    assert search(names, "nothing like it") == ([], 0)


def test_the_best_matches_are_first() -> None:
    """Names that begin with the text precede others, and short ones long ones. The number of the others is known."""
    names = [Found("group", name) for name in ("xa", "abc", "ab", *(f"z{n:02}a" for n in range(30)))]
    found, more = search(names, "a")
    assert [one.name for one in found[:3]] == ["ab", "abc", "xa"]
    assert (len(found), more) == (MAX_FOUND, 33 - MAX_FOUND)
