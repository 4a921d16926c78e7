"""`dashboards push --prune` and `--dry-run`; on the stub of Grafana."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.grafana_push import dashboard, rule, save_as_person
from tallystream_dashboards.grafana.settings import Settings

if TYPE_CHECKING:
    from support.grafana_push import Pusher
    from support.grafana_stub import GrafanaStub
    from tallystream_dashboards.grafana.resources import Resources


OTHERS = {"uid": "theirs", "title": "Theirs", "panels": []}


def test_prune_removes_what_is_no_longer_generated(grafana: GrafanaStub, push: Pusher) -> None:
    """It removes dashboards, rule groups and data sources of an earlier push, and nothing of a person's."""

    def more(generated: Resources) -> None:
        generated.dashboards["tallystream-old"] = dashboard("old")
        old = {"title": "old / rules", "folderUid": "tallystream-folder", "interval": 60, "rules": [rule("old")]}
        generated.rule_groups.append(old)
        generated.datasources.append(generated.datasources[0] | {"uid": "tallystream-other", "name": "Other"})

    push(more)
    grafana.state.save_dashboard({"dashboard": OTHERS, "folderUid": "tallystream-folder"}, "anna")
    grafana.state.datasources["theirs"] = grafana.state.datasources["tallystream-flux"] | {
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
    assert set(grafana.state.dashboards) == {"tallystream-overview", "tallystream-lag", "theirs"}
    assert set(grafana.state.datasources) == {"tallystream-flux", "theirs"}
    assert push.output.splitlines()[-1] == "Done: 3 removed, 6 unchanged."


def test_prune_does_not_remove_what_a_person_changed(grafana: GrafanaStub, push: Pusher) -> None:
    """The push is refused; --keep-changed keeps the dashboard, --overwrite removes it."""
    push(lambda generated: generated.dashboards.update({"tallystream-old": dashboard("old")}))
    save_as_person(grafana, "tallystream-old", "My own")
    assert "dashboard My own [tallystream-old]" in push.refused(prune=True)
    assert push(prune=True, on_manual_change="keep") == []
    assert push(prune=True, on_manual_change="overwrite") == ["DELETE /dashboards/uid/tallystream-old"]


def test_prune_does_not_remove_resources_of_another_system(grafana: GrafanaStub, push: Pusher) -> None:
    """A dashboard whose uid prefix starts with ours belongs to another system if it is in another folder."""
    settings = Settings(uid_prefix="tallystream-b", folder_title="B", datasource_name="B")
    name = "tallystream-b-lag"

    def other(generated: Resources) -> None:
        generated.dashboards.clear()
        generated.rule_groups.clear()
        generated.dashboards[name] = dashboard("b-lag")

    push(other, generate=settings)
    push()
    assert push(prune=True) == []
    assert name in grafana.state.dashboards


def test_a_dry_run_prints_the_differences_and_writes_nothing(grafana: GrafanaStub, push: Pusher) -> None:
    """It prints a line for each resource, with its differences; the exit code is 1 if a push would be refused."""
    push(lambda generated: generated.dashboards.update({"tallystream-old": dashboard("old")}))

    def change(generated: Resources) -> None:
        generated.dashboards["tallystream-new"] = dashboard("new")
        lag = generated.dashboards["tallystream-lag"]
        lag["panels"][0]["type"] = "stat"
        lag["time"]["from"] = "now-6h"
        model = generated.rule_groups[0]["rules"][1]["data"][0]["model"]
        model["query"] = model["query"].replace("9", "10")

    assert push(change, dry_run=True, prune=True) == []
    assert push.code == 0
    assert push.output.splitlines() == [
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
        "- remove    dashboard Old [tallystream-old] (it is no longer generated)",
        "Nothing was written. Result of a push: 1 created, 2 updated, 1 removed, 4 unchanged.",
    ]
    save_as_person(grafana, "tallystream-lag", "My lag")
    assert push(change, dry_run=True) == []
    assert push.code == 1
    assert '      ~ title: "My lag" → "Lag"' in push.output.splitlines()
