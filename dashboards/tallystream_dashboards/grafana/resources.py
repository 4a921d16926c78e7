"""All resources of a flavour, in the form of Grafana's HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.alerts.group import contact_point, rule_groups
from tallystream_dashboards.grafana.dashboards import instances, lag, metric, overview, pipeline
from tallystream_dashboards.grafana.settings import PLUGINS

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Settings

DASHBOARDS = (overview.DASHBOARD, metric.DASHBOARD, instances.DASHBOARD, lag.DASHBOARD, pipeline.DASHBOARD)
"""Every dashboard, in the order of the links between them."""

TOKEN = "$INFLUXDB_TOKEN"  # noqa: S105 (the name of an environment variable, not a secret)


@dataclass(frozen=True, slots=True)
class Resources:
    """Everything that Grafana needs, as plain JSON; the same settings give the same resources.

    A secret is a reference to an environment variable, `$NAME`, in a string below `secureJsonData` of a data source or
    below `settings` of the contact point. Grafana resolves references in provisioning files, but not over HTTP.

    Args:
        folder: `uid` and `title` (POST /api/folders).
        datasources: POST /api/datasources, each with `uid` and `name`.
        dashboards: by uid, the dashboard's JSON model (`dashboard` in POST /api/dashboards/db), with `uid` and `title`,
            without `id`.
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
    """Return all resources of the settings' flavour."""
    supported = [dashboard for dashboard in DASHBOARDS if dashboard.supports(settings.flavour)]
    dashboards = {settings.uid(dashboard.name): dashboard.model(settings, supported) for dashboard in supported}
    return Resources(
        folder={"uid": settings.uid("folder"), "title": settings.folder_title},
        datasources=[_datasource(settings)],
        dashboards=dashboards,
        rule_groups=rule_groups(settings, dashboards),
        contact_point=contact_point(settings),
    )


def _datasource(settings: Settings) -> dict[str, Any]:
    fields: dict[str, dict[str, Any]] = {
        "flux": {
            "jsonData": {"version": "Flux", "organization": settings.org, "defaultBucket": settings.bucket},
            "secureJsonData": {"token": TOKEN},
        },
        # InfluxDB 2.x answers InfluxQL on /query for a database mapped to the bucket; the token is a header.
        "influxql": {
            "jsonData": {
                "version": "InfluxQL",
                "dbName": settings.bucket,
                "httpMode": "POST",
                "httpHeaderName1": "Authorization",
            },
            "secureJsonData": {"httpHeaderValue1": f"Token {TOKEN}"},
        },
        "prometheus": {"jsonData": {"httpMethod": "POST"}},
    }
    return {
        "uid": settings.datasource_uid,
        "name": settings.name,
        "type": PLUGINS[settings.flavour],
        "access": "proxy",
        "url": settings.url,
        "isDefault": False,
        "basicAuth": False,
        **fields[settings.flavour],
    }
