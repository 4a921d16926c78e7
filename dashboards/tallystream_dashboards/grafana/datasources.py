"""The data source of a flavour, as Grafana's HTTP API takes it (POST /api/datasources)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Settings

TYPES = {"flux": "influxdb", "influxql": "influxdb", "prometheus": "prometheus"}
"""Grafana's plugin by flavour."""

TOKEN = "$INFLUXDB_TOKEN"  # noqa: S105 (the name of an environment variable, not a secret)


def datasource(settings: Settings) -> dict[str, Any]:
    """Return the data source; its only secret, InfluxDB's token, is a reference to the environment."""
    one: dict[str, Any] = {
        "uid": settings.datasource_uid,
        "name": settings.name,
        "type": TYPES[settings.flavour],
        "access": "proxy",
        "url": settings.url,
        "isDefault": False,
        "basicAuth": False,
    }
    return (
        one
        | {
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
        }[settings.flavour]
    )


def reference(settings: Settings) -> dict[str, str]:
    """Return how a query names the data source."""
    return {"type": TYPES[settings.flavour], "uid": settings.datasource_uid}
