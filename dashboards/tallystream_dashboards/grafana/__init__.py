"""Grafana as code: dashboards, alert rules, data source and contact point, in the form of Grafana's HTTP API.

`resources(settings)` returns them as plain JSON; `generate.files(settings)` returns them as files.
"""

from __future__ import annotations

from tallystream_dashboards.grafana.resources import Resources, resources
from tallystream_dashboards.grafana.settings import Contact, Settings, Thresholds

__all__ = ["Contact", "Resources", "Settings", "Thresholds", "resources"]
