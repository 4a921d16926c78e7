"""Everything that Grafana is given, in the shapes of its HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.alerts.group import contact_point, rule_groups
from tallystream_dashboards.grafana.dashboards.all import dashboards
from tallystream_dashboards.grafana.datasources import datasource

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Settings


@dataclass(frozen=True, slots=True)
class Resources:
    """What Grafana is given: plain JSON, the same for the same settings.

    A secret is a reference to an environment variable, `$NAME`, anywhere in a string below `secureJsonData` of a data
    source or `settings` of the contact point. Grafana resolves it in provisioning files; over HTTP it does not.

    Args:
        folder: `uid` and `title` (POST /api/folders).
        datasources: POST /api/datasources, each with `uid` and `name`.
        dashboards: by uid, the model itself (`dashboard` in POST /api/dashboards/db), with `uid` and `title`, no `id`.
        rule_groups: PUT /api/v1/provisioning/folder/{folderUid}/rule-groups/{title}: `title`, `folderUid`, `interval`
            (seconds) and `rules`, each with a `uid`.
        contact_point: POST /api/v1/provisioning/contact-points, with `uid` and `name`.
    """

    folder: dict[str, Any]
    datasources: list[dict[str, Any]]
    dashboards: dict[str, dict[str, Any]]
    rule_groups: list[dict[str, Any]]
    contact_point: dict[str, Any]


def resources(settings: Settings) -> Resources:
    """Return everything of one flavour."""
    return Resources(
        folder={"uid": settings.uid("folder"), "title": settings.folder_title},
        datasources=[datasource(settings)],
        dashboards=dashboards(settings),
        rule_groups=rule_groups(settings),
        contact_point=contact_point(settings),
    )
