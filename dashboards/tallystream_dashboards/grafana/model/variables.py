"""The variables at the top of a dashboard: data source, bucket, and what is chosen in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.datasources import TYPES
from tallystream_dashboards.grafana.model.query import DATASOURCE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.grafana.settings import Flavour, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable whose values a query finds.

    Args:
        name: as in `$app`.
        label: as people see it.
        queries: by flavour.
        regex: what of each value is taken, a JavaScript regular expression; by flavour.
        many: several may be chosen, and all, which is the regular expression `.*`, unless `everything` has another.
        everything: what stands for all, a regular expression; by flavour.
    """

    name: str
    label: str
    queries: Mapping[Flavour, str]
    regex: Mapping[Flavour, str]
    many: bool = True
    everything: Mapping[Flavour, str] = field(default_factory=dict)

    def model(self, flavour: Flavour) -> dict[str, Any]:
        """Return its JSON."""
        text = self.queries[flavour]
        made: dict[str, Any] = {
            "type": "query",
            "name": self.name,
            "label": self.label,
            "datasource": {"type": TYPES[flavour], "uid": DATASOURCE_VARIABLE},
            "query": {"query": text, "refId": self.name},
            "definition": text,
            "regex": self.regex.get(flavour, ""),
            "refresh": 2,  # whenever the time range changes
            "sort": 1,
            "hide": 0,
            "multi": self.many,
            "includeAll": self.many,
            "options": [],
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if self.many else {},
        }
        # Prometheus has no series without a name: what may be anything has to be something there.
        every = self.everything.get(flavour, ".+" if flavour == "prometheus" else ".*")
        return made | ({"allValue": every} if self.many else {})


def datasource_variable(settings: Settings) -> dict[str, Any]:
    """Return the variable of the data source: Grafana takes another one of its kind where ours is not there."""
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": TYPES[settings.flavour],
        "regex": "",
        "refresh": 1,
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "options": [],
        "current": {"selected": True, "text": settings.name, "value": settings.datasource_uid},
    }


def bucket_variable(settings: Settings) -> dict[str, Any]:
    """Return the variable of InfluxDB's bucket: in Flux every query names it."""
    text = (
        'buckets()\n  |> filter(fn: (r) => r.name !~ /^_/)\n  |> keep(columns: ["name"])'
        '\n  |> rename(columns: {name: "_value"})'
    )
    one = Variable(name="bucket", label="Bucket", queries={"flux": text}, regex={}, many=False).model("flux")
    return one | {"refresh": 1, "current": {"selected": True, "text": settings.bucket, "value": settings.bucket}}
