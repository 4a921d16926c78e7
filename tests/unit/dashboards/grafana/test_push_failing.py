"""`dashboards push` that fails in the midst, or finds something in its way; on the stub of Grafana."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.grafana_made import TOKEN
from support.grafana_pushing import rule_by_hand
from tallystream_dashboards.grafana.settings import Settings

if TYPE_CHECKING:
    from support.grafana_pushing import Pusher
    from support.grafana_stub import GrafanaStub


def test_a_failure_in_the_midst_says_what_was_done(grafana: GrafanaStub, push: Pusher) -> None:
    """Nothing after it is written; the same command run again goes on, and then there is nothing to do."""
    grafana.fail("POST /dashboards/db", 500, f"disk full, token {TOKEN}")
    said = push.failed()
    assert "Grafana could not save a dashboard (500: disk full, token ***)" in said
    done, left = said.partition("Done: ")[2].split(" Not done: ")
    assert done == (
        "folder Tallystream [tallystream-folder], data source Tallystream Flux [tallystream-flux], "
        "contact point Tallystream [tallystream-contact]."
    )
    assert left.startswith(
        "dashboard Overview [tallystream-overview], dashboard Lag [tallystream-lag], rule group lag."
    )
    assert left.endswith("it continues from here.")
    assert grafana.store.rules == {}
    assert push()[0] == "POST /dashboards/db"
    assert push.said.splitlines()[-1] == "Done: 3 created, 3 unchanged."
    assert push() == []


@pytest.mark.parametrize(
    "request_",
    ["PUT /datasources/uid/tallystream-flux", "PUT /v1/provisioning/folder/tallystream-folder/rule-groups/lag"],
)
def test_between_the_two_writes_of_one_resource(grafana: GrafanaStub, push: Pusher, request_: str) -> None:
    """What Grafana made of it is written down in a second step: where that fails nobody is taken for a person."""
    grafana.fail(request_, 500, "away")
    push.failed()
    assert push() != []
    assert push() == []


def test_what_is_provisioned_stands_in_the_way(grafana: GrafanaStub, push: Pusher) -> None:
    """Grafana lets nobody write what comes from a file; --overwrite does not help, and is not offered."""
    push()
    grafana.store.dashboards["tallystream-lag"]["meta"]["provisioned"] = True
    grafana.store.datasources["tallystream-flux"]["readOnly"] = True
    rule_by_hand(grafana, "tallystream-rule-a", provenance="file")
    said = push.refused(on_manual_change="overwrite")
    assert said.count("it is provisioned from a file or by another program") == 3
    assert "--overwrite" not in said


def test_a_data_source_of_the_name_stands_in_the_way(grafana: GrafanaStub, push: Pusher) -> None:
    """Names of data sources are unique: known before anything is written."""
    push(made=Settings(uid_prefix="other"))
    assert (
        "a data source of this name is there, with the uid other-flux: give another --datasource-name" in push.refused()
    )
