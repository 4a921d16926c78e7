"""The variables of a dashboard: data source, bucket, and what is selected in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.settings import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.grafana.settings import Flavour, Settings

DATASOURCE_VARIABLE = "${datasource}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable whose values are the result of a query.

    Args:
        name: as in `$app`.
        label: shown beside the selection.
        queries: by flavour.
        regex: by flavour, a JavaScript regular expression; its first group is the part of the value that is used.
        multi: several values may be selected, and All.
        all_value: by flavour, the regular expression of All; by default one that matches everything.
    """

    name: str
    label: str
    queries: Mapping[Flavour, str]
    regex: Mapping[Flavour, str] = field(default_factory=dict)
    multi: bool = True
    all_value: Mapping[Flavour, str] = field(default_factory=dict)

    def model(self, flavour: Flavour) -> dict[str, Any]:
        """Return the variable as JSON."""
        text = self.queries[flavour]
        model: dict[str, Any] = {
            "type": "query",
            "name": self.name,
            "label": self.label,
            "datasource": {"type": PLUGINS[flavour], "uid": DATASOURCE_VARIABLE},
            "query": {"query": text, "refId": self.name},
            "definition": text,
            "regex": self.regex.get(flavour, ""),
            "refresh": 2,  # whenever the time range changes
            "sort": 1,
            "hide": 0,
            "multi": self.multi,
            "includeAll": self.multi,
            "options": [],
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if self.multi else {},
        }
        # Prometheus refuses a selector whose only matchers accept the empty string.
        all_value = self.all_value.get(flavour, ".+" if flavour == "prometheus" else ".*")
        return model | ({"allValue": all_value} if self.multi else {})


def datasource_variable(settings: Settings) -> dict[str, Any]:
    """Return the variable of the data source; if ours does not exist, Grafana selects another one of the same type."""
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": PLUGINS[settings.flavour],
        "regex": "",
        "refresh": 1,
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "options": [],
        "current": {"selected": True, "text": settings.name, "value": settings.datasource_uid},
    }


def bucket_variable(settings: Settings) -> dict[str, Any]:
    """Return the variable of InfluxDB's bucket, which every Flux query names."""
    text = (
        'buckets()\n  |> filter(fn: (r) => r.name !~ /^_/)\n  |> keep(columns: ["name"])'
        '\n  |> rename(columns: {name: "_value"})'
    )
    variable = Variable(name="bucket", label="Bucket", queries={"flux": text}, multi=False).model("flux")
    return variable | {"refresh": 1, "current": {"selected": True, "text": settings.bucket, "value": settings.bucket}}
