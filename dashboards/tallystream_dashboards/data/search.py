"""Find groups, topics, apps, metrics and instances by a part of their names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystream_aggregator.shipping.points import is_sum
from tallystream_aggregator.sinks.base import INSTANCE_PREFIX
from tallystream_dashboards.data.observed import SENT
from tallystream_dashboards.data.sums import MAX_MEASUREMENTS
from tallystream_dashboards.lag.storage import ALL as LAGS
from tallystream_dashboards.lag.storage import GROUPS, LAG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream_aggregator.sinks.base import PointReader

MAX_FOUND = 20
"""How many names a search shows, those that begin with the text first."""
LAG_MS = 86_400_000
"""How far back the names of groups and topics are read, in ms."""
INSTANCE_METRICS = 20
"""By how many metrics instances are found, if there are none of the reporters' own."""


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """A name with its kind, where it belongs to, and the parameters of the page's address that shows it."""

    kind: str
    name: str
    of: str = ""
    params: Mapping[str, str] = field(default_factory=dict, compare=False, hash=False)


def read_names(reader: PointReader, *, at_ms: int) -> list[Found]:
    """Return everything that can be found at `at_ms`.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    found: set[Found] = set()
    for one in reader.read(GROUPS, ("status",), start_ms=at_ms - LAG_MS, end_ms=at_ms + 1):
        found.add(Found("group", one.tags["group"], params={"view": "groups", "group": one.tags["group"]}))
    for one in reader.read(LAG, ("status",), start_ms=at_ms - LAG_MS, end_ms=at_ms + 1):
        group = one.tags["group"]
        found.add(Found("topic", one.tags["topic"], f"read by {group}", {"view": "groups", "group": group}))
    measurements = reader.measurements()
    names = [name for name in measurements if name not in LAGS and is_sum(name)]
    for name in names[:MAX_MEASUREMENTS]:
        for one in reader.read(name, ("instances",), start_ms=at_ms, end_ms=at_ms + 1, last_before=True):
            app = one.tags.get("app", "")
            found.add(Found("app", app, params={"view": "metrics", "app": app}))
            found.add(Found("metric", name, f"of {app}", {"view": "metrics", "app": app, "metric": name}))
    for name in _instance_metrics(measurements):
        for one in reader.read(name, ("life",), start_ms=at_ms, end_ms=at_ms + 1, last_before=True):
            app, instance = one.tags.get("app", ""), one.tags.get("instance", "")
            metric = {} if name == INSTANCE_PREFIX + SENT else {"metric": name.removeprefix(INSTANCE_PREFIX)}
            found.add(Found("instance", instance, f"of {app}", {"view": "metrics", "app": app, **metric}))
    return sorted(found)


def _instance_metrics(measurements: Sequence[str]) -> list[str]:
    sent = INSTANCE_PREFIX + SENT
    named = [name for name in measurements if name.startswith(INSTANCE_PREFIX)]
    return [sent] if sent in named else named[:INSTANCE_METRICS]


def search(names: Sequence[Found], text: str) -> tuple[list[Found], int]:
    """Return the first names that contain the text, in any case, and how many more there are."""
    wanted = text.strip().lower()
    matches = [one for one in names if wanted in one.name.lower()]
    matches.sort(key=lambda one: (not one.name.lower().startswith(wanted), len(one.name)))
    return matches[:MAX_FOUND], max(0, len(matches) - MAX_FOUND)
