"""Grafana as code: dashboards, alert rules and what they need, in the shapes of Grafana's HTTP API. docs/grafana.md.

`resources(settings)` returns all of it as plain JSON; `generate.files(settings)` the same as files.
"""

from __future__ import annotations

from tallystream_dashboards.grafana.resources import Resources, resources
from tallystream_dashboards.grafana.settings import Contact, Settings, Thresholds

__all__ = ["Contact", "Resources", "Settings", "Thresholds", "resources"]
