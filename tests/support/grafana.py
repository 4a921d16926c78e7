"""What Grafana does before it sends a query: its variables and macros are put in, as its documentation says.

Sources: "Variable syntax" (formats regex and the default of each data source), "Template variables" of the InfluxDB and
Prometheus data sources, "Annotate visualizations" (grafana.com/docs).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tallystream_dashboards.grafana.queries.influxql import ALL

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = re.compile(r"\$(?:([a-z_]\w*)|\{(\w+)(?::(\w+))?\})")
BUILT_IN = frozenset(
    {"timeFilter", "__interval", "__interval_ms", "__rate_interval", "__url_time_range", "__value", "__data", "__field"}
)
Chosen = "Mapping[str, str | list[str]]"


def variables_of(text: str) -> set[str]:
    """Return the dashboard's variables that a text uses."""
    return {match[1] or match[2] for match in VARIABLE.finditer(text)} - BUILT_IN


def put_in(
    text: str, flavour: str, chosen: Mapping[str, str | list[str]], *, start_ms: int, end_ms: int, step_s: int = 15
) -> str:
    """Return the query as Grafana sends it; what is chosen is a value, several, or, as a text, `allValue`."""
    start, end = (
        datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z") for ms in (start_ms, end_ms)
    )
    macros = {
        "flux": {"v.timeRangeStart": start, "v.timeRangeStop": end, "v.windowPeriod": f"{step_s}s"},
        "influxql": {
            "$timeFilter": f"time >= {start_ms}ms and time <= {end_ms}ms",
            "$__interval": f"{step_s}s",
            "$__interval_ms": f"{step_s * 1000}",
        },
        "prometheus": {"$__rate_interval": f"{4 * step_s}s", "$__interval": f"{step_s}s"},
    }[flavour]
    for macro, value in sorted(macros.items(), key=lambda one: -len(one[0])):
        text = text.replace(macro, value)

    def value_of(match: re.Match[str]) -> str:
        return _formatted(chosen[match[1] or match[2]], match[3] or "", flavour)

    return VARIABLE.sub(value_of, text)


def _formatted(value: str | list[str], form: str, flavour: str) -> str:
    if isinstance(value, str) and (value in {".*", ".+", ALL} or (not form and flavour != "prometheus")):
        return value
    escape = _promql if flavour == "prometheus" and not form else _regex
    if isinstance(value, str):
        return escape(value)
    return escape(value[0]) if len(value) == 1 else "(" + "|".join(escape(one) for one in value) + ")"


def _regex(text: str) -> str:
    return re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", text)


def _promql(text: str) -> str:
    return re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", text.replace("\\", "\\\\\\\\"))


CHOSEN: dict[str, str | list[str]] = {
    "app": ["orders"],
    "instance": ["orders-1", "orders-2"],
    "group": ".*",
    "topic": ".*",
}
"""What a person has chosen at the top of a dashboard; the metric depends on the panel."""
METRIC_OF = {
    "Gauge": "queue.length",
    "Value by instance": "queue.length",
    "Gauges by metric and app": "queue.length",
    "Quantiles": "request.time",
    "Rates as the instances report them": "requests",
}
"""The metric chosen for a panel that needs one of a type; records.processed for others."""
