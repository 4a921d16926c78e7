"""The dashboards' JSON: whole, consistent with itself, and what Grafana's own models know."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import alerting
from grafana_foundation_sdk.models.dashboard import Dashboard

from support.grafana_queries import variables_of
from tallystream_dashboards.grafana import Settings, resources
from tallystream_dashboards.grafana.alerts.rules import RULES
from tallystream_dashboards.grafana.resources import DASHBOARDS
from tallystream_dashboards.grafana.settings import FLAVOURS, Flavour

if TYPE_CHECKING:
    from collections.abc import Iterator

MODELS = [
    pytest.param(flavour, model, id=f"{flavour}-{uid}")
    for flavour in FLAVOURS
    for uid, model in resources(Settings(flavour=flavour)).dashboards.items()
]
UNKNOWN_TO_THE_MODELS = {
    "/templating/list/definition",  # Grafana shows it in its list of variables
    "/annotations/list/target/query",  # the data source's, of which the models have no own type
    "/annotations/list/target/refId",
    "/annotations/list/target/rawQuery",
    "/annotations/list/target/resultFormat",
    "/annotations/list/target/fromAnnotations",
    "/annotations/list/target/textColumn",
    "/annotations/list/mappings",
    "/panels/fieldConfig/defaults/custom/spanNulls",  # of state timelines: Grafana's "Connect null values"
}


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


def lost(given: Any, read: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of what is in `given` and not, or otherwise, in `read`."""
    if isinstance(given, dict):
        for name, value in given.items():
            if isinstance(read, dict) and name in read:
                yield from lost(value, read[name], f"{path}/{name}")
            else:
                yield f"{path}/{name}"
    elif isinstance(given, list):
        if not isinstance(read, list) or len(read) != len(given):
            yield path
        else:
            for one, other in zip(given, read, strict=True):
                yield from lost(one, other, path)
    elif given != read:
        yield f"{path}: {given!r} is read as {read!r}"


@pytest.mark.parametrize(("flavour", "model"), MODELS)
def test_grafanas_own_models_know_every_field(flavour: Flavour, model: dict[str, Any]) -> None:
    """Read by the Grafana Foundation SDK and written again, nothing of a dashboard is missing or different."""
    plugins.register_default_plugins()
    read = json.loads(json.dumps(Dashboard.from_json(json.loads(json.dumps(model))), cls=JSONEncoder))
    assert set(lost(model, read)) <= UNKNOWN_TO_THE_MODELS


@pytest.mark.parametrize("flavour", ["flux", "prometheus"])
def test_grafanas_own_models_know_every_field_of_the_rules(flavour: Flavour) -> None:
    """The same for the group of rules; KeepLast is a word of Grafana's API that the models' types only lack."""
    (group,) = resources(Settings(flavour=flavour)).rule_groups
    read = json.loads(json.dumps(alerting.RuleGroup.from_json(json.loads(json.dumps(group))), cls=JSONEncoder))
    assert set(lost(group, read)) == set()


@pytest.mark.parametrize(("flavour", "model"), MODELS)
def test_panels_have_ids_and_places_of_their_own(flavour: Flavour, model: dict[str, Any]) -> None:
    """No two panels share an id or a cell of the grid, and none goes beyond its 24 columns."""
    panels = model["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    assert len({one["title"] for one in panels if one["type"] != "row"}) == sum(one["type"] != "row" for one in panels)
    places = [one["gridPos"] for one in panels]
    assert all(one["x"] + one["w"] <= 24 and one["w"] > 0 and one["h"] > 0 for one in places)
    for one, other in combinations(places, 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart |= one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart, (one, other)


@pytest.mark.parametrize(("flavour", "model"), MODELS)
def test_every_variable_that_is_used_is_defined_and_the_other_way_round(
    flavour: Flavour, model: dict[str, Any]
) -> None:
    """A query that names a variable finds it at the top, before those that need it, and none is there for nothing."""
    variables = model["templating"]["list"]
    known: set[str] = set()
    for one in variables:
        assert variables_of(json.dumps([one.get("query", ""), one.get("datasource", "")])) <= known, one["name"]
        known.add(one["name"])
    asked = [one for panel in model["panels"] for one in [panel, *panel.get("targets", [])]]
    shown = [text for one in asked for part in ("datasource", "query", "expr") for text in texts(one.get(part))]
    used = {name for text in [*shown, *texts(model["annotations"])] for name in variables_of(text)}
    assert used <= known
    among = {name for one in variables for name in variables_of(json.dumps(one.get("query", "")))}
    assert known <= used | among | {"datasource"}


@pytest.mark.parametrize(("flavour", "model"), MODELS)
def test_every_panel_says_what_it_is_and_what_to_do_when_empty(flavour: Flavour, model: dict[str, Any]) -> None:
    """Each panel has a unit, a sentence of help, and one for when there is nothing; its lines have names."""
    for panel in model["panels"]:
        if panel["type"] == "row":
            continue
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"]
        assert panel["description"].endswith(".")
        assert re.search(r"[.?]$", defaults["noValue"])
        assert panel["targets"]
        named = {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]}
        for target in panel["targets"]:
            if panel["type"] != "table":
                assert (
                    target.get("alias")
                    or target.get("legendFormat", "__auto") != "__auto"
                    or target["refId"] in named
                    or ", * fill" in target.get("query", "")  # a line a series: Grafana names it by all its tags
                )


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_links_lead_to_dashboards_that_are_there(flavour: Flavour) -> None:
    """Each dashboard leads to every other one, and whatever leads somewhere leads to a uid of this set."""
    made = resources(Settings(flavour=flavour, uid_prefix="p")).dashboards
    for uid, model in made.items():
        assert {one["url"].removeprefix("/d/") for one in model["links"]} == made.keys() - {uid}
        for text in texts(model["panels"]):
            for target in re.findall(r"/d/([^?/]+)", text):
                assert target in made


@pytest.mark.parametrize("flavour", ["flux", "prometheus"])
def test_every_rule_leads_to_a_panel_that_shows_it(flavour: Flavour) -> None:
    """A rule's dashboard and panel are there, under the id that it names; so is its anchor in the runbook."""
    made = resources(Settings(flavour=flavour, runbook_url="https://wiki/runbook"))
    (group,) = made.rule_groups
    assert [one["uid"] for one in group["rules"]] == [f"tallystream-{rule.slug}" for rule in RULES]
    for rule, one in zip(RULES, group["rules"], strict=True):
        notes = one["annotations"]
        panels = {str(panel["id"]): panel["title"] for panel in made.dashboards[notes["__dashboardUid__"]]["panels"]}
        assert panels[notes["__panelId__"]] == rule.panel
        assert notes["runbook_url"] == f"https://wiki/runbook#{rule.slug}"
        assert one["notification_settings"]["receiver"] == made.contact_point["name"]


def test_a_panel_has_one_id_in_every_flavour() -> None:
    """A link to a panel of one flavour leads to the same one of another."""
    for dashboard in DASHBOARDS:
        ids: dict[str, set[int]] = {}
        for flavour in FLAVOURS:
            if dashboard.supports(flavour):
                for one in dashboard.model(Settings(flavour=flavour), DASHBOARDS)["panels"]:
                    ids.setdefault(f"{one['type']} {one['title']}", set()).add(one["id"])
        assert all(len(found) == 1 for found in ids.values())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_uid_fits_grafana(flavour: Flavour) -> None:
    """The longest prefix that is allowed makes no uid longer than the 40 characters that Grafana takes."""
    made = resources(Settings(flavour=flavour, uid_prefix="x" * 15))
    rules = [one["uid"] for group in made.rule_groups for one in group["rules"]]
    uids = [made.folder["uid"], made.contact_point["uid"], *made.dashboards, *rules]
    assert all(len(uid) <= 40 for uid in [*uids, *(one["uid"] for one in made.datasources)])
