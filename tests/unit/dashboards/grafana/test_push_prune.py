"""`dashboards push --prune` and `--dry-run`: what is removed, and what would be; on the stub of Grafana."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.grafana_made import dashboard, made, rule
from support.grafana_pushing import by_hand
from tallystream_dashboards.grafana.settings import Settings

if TYPE_CHECKING:
    from support.grafana_pushing import Pusher
    from support.grafana_stub import GrafanaStub
    from tallystream_dashboards.grafana.resources import Resources


OTHERS = {"uid": "theirs", "title": "Theirs", "panels": []}


def test_prune_removes_what_is_ours_and_no_longer_generated(grafana: GrafanaStub, push: Pusher) -> None:
    """Dashboards, rule groups and data sources of an earlier push; without --prune they stay."""

    def more(one: Resources) -> None:
        one.dashboards["tallystream-old"] = dashboard("old")
        old = {"title": "old / rules", "folderUid": "tallystream-folder", "interval": 60, "rules": [rule("old")]}
        one.rule_groups.append(old)
        one.datasources.append(one.datasources[0] | {"uid": "tallystream-other", "name": "Other"})

    push(made(more))
    grafana.store.save_dashboard({"dashboard": OTHERS, "folderUid": "tallystream-folder"}, "anna")
    grafana.store.datasources["theirs"] = grafana.store.datasources["tallystream-flux"] | {
        "uid": "theirs",
        "name": "Theirs",
        "jsonData": {},
    }
    assert push() == []
    assert push(prune=True) == [
        "DELETE /v1/provisioning/alert-rules/tallystream-rule-old",
        "DELETE /dashboards/uid/tallystream-old",
        "DELETE /datasources/uid/tallystream-other",
    ]
    assert set(grafana.store.dashboards) == {"tallystream-overview", "tallystream-lag", "theirs"}
    assert set(grafana.store.datasources) == {"tallystream-flux", "theirs"}
    assert push.said.splitlines()[-1] == "Done: 3 removed, 6 unchanged."


def test_prune_asks_before_it_removes_what_a_person_changed(grafana: GrafanaStub, push: Pusher) -> None:
    """What was changed by hand is somebody's work, generated or not."""
    push(made(lambda one: one.dashboards.update({"tallystream-old": dashboard("old")})))
    by_hand(grafana, "tallystream-old", "My own")
    assert "dashboard My own [tallystream-old]" in push.refused(prune=True)
    assert push(prune=True, on_manual_change="keep") == []
    assert push(prune=True, on_manual_change="overwrite") == ["DELETE /dashboards/uid/tallystream-old"]


def test_prune_leaves_another_system_alone(grafana: GrafanaStub, push: Pusher) -> None:
    """A uid prefix that begins like ours is another's: its folder and its marks tell."""
    settings = Settings(uid_prefix="tallystream-b", folder_title="B", datasource_name="B")
    name = "tallystream-b-lag"

    def other(one: Resources) -> None:
        one.dashboards.clear()
        one.rule_groups.clear()
        one.dashboards[name] = dashboard("b-lag")

    push(made(other), made=settings)
    push()
    assert push(prune=True) == []
    assert name in grafana.store.dashboards


def test_a_dry_run_tells_the_difference_and_writes_nothing(grafana: GrafanaStub, push: Pusher) -> None:
    """A line for each resource, with its differences; the exit code says whether a push would go through."""
    push(made(lambda one: one.dashboards.update({"tallystream-old": dashboard("old")})))

    def change(one: Resources) -> None:
        one.dashboards["tallystream-new"] = dashboard("new")
        lag = one.dashboards["tallystream-lag"]
        lag["panels"][0]["type"] = "stat"
        lag["time"]["from"] = "now-6h"
        model = one.rule_groups[0]["rules"][1]["data"][0]["model"]
        model["query"] = model["query"].replace("9", "10")

    assert push(made(change), dry_run=True, prune=True) == []
    assert push.code == 0
    assert push.said.splitlines() == [
        "= unchanged folder Tallystream [tallystream-folder]",
        "= unchanged data source Tallystream Flux [tallystream-flux]",
        "= unchanged contact point Tallystream [tallystream-contact]",
        "= unchanged dashboard Overview [tallystream-overview]",
        "~ update    dashboard Lag [tallystream-lag]",
        '      ~ panels[Worst].type: "timeseries" → "stat"',
        '      ~ time.from: "now-1h" → "now-6h"',
        "+ create    dashboard New [tallystream-new]",
        "~ update    rule group lag",
        '      ~ rules[Lag of b].data[A].model.query: "… r._value > 9)" → "… r._value > 10)"',
        "- remove    dashboard Old [tallystream-old] (it is no longer wanted)",
        "Nothing was written. A push would leave 1 created, 2 updated, 1 removed, 4 unchanged.",
    ]
    by_hand(grafana, "tallystream-lag", "My lag")
    assert push(made(change), dry_run=True) == []
    assert push.code == 1
    assert '      ~ title: "My lag" → "Lag"' in push.said.splitlines()
