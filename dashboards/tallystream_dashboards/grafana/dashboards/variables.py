"""The variables of the dashboards, and the queries of their annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.grafana.model.variables import Variable
from tallystream_dashboards.grafana.queries import flux, influxql

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Flavour

_SCHEMA = 'import "influxdata/influxdb/schema"\n\n'


def _tag(tag: str, where: str) -> str:
    return (
        f'{_SCHEMA}schema.tagValues(bucket: "${{bucket}}", tag: "{tag}", predicate: (r) => {where}, '
        f"start: -{flux.LOOKBACK})"
    )


APP = Variable(
    name="app",
    label="App",
    queries={
        "flux": _tag("app", "exists r.metric_type"),
        "influxql": 'SHOW TAG VALUES WITH KEY = "app"',
        "prometheus": "label_values(tallystream_living_instances, app)",
    },
)

METRICS = Variable(
    name="metric",
    label="Metric",
    queries={
        "flux": f"{_tag('_measurement', f'{flux.APP} and exists r.metric_type')}\n"
        "  |> filter(fn: (r) => r._value !~ /^instance:/)",
        "influxql": 'SHOW MEASUREMENTS WHERE "metric_type" =~ /.+/ AND "app" =~ /^${app:regex}$/',
        "prometheus": 'label_values({metric_type=~".+",app=~"$app",__name__!~"tallystream_(living|retired|sum).*|'
        '.+_(mean|m1|m5|m15)_rate|.+_start"}, __name__)',
    },
    # The family's name without the suffix of its type, whichever of its series was found.
    regex={"influxql": "/^(?!instance:).*/", "prometheus": "/^(.+?)(?:_total|_sum|_count|_min|_max|_mean|_number)?$/"},
    all_value={"influxql": influxql.ALL},
)

METRIC = Variable(name="metric", label="Metric", queries=METRICS.queries, regex=METRICS.regex, multi=False)

INSTANCE_METRIC = Variable(
    name="metric",
    label="Metric",
    queries={
        "flux": f"{_tag('_measurement', f'{flux.APP} and exists r.instance')}\n"
        "  |> filter(fn: (r) => r._value =~ /^instance:/)",
        "influxql": 'SHOW MEASUREMENTS WITH MEASUREMENT =~ /^instance:/ WHERE "app" =~ /^${app:regex}$/',
    },
    regex={"flux": "/^instance:(.*)$/", "influxql": "/^instance:(.*)$/"},
    multi=False,
)

INSTANCE = Variable(
    name="instance",
    label="Instance",
    queries={
        "flux": _tag("instance", f"{flux.APP} and exists r.metric_type"),
        "influxql": 'SHOW TAG VALUES WITH KEY = "instance" WHERE "app" =~ /^${app:regex}$/',
    },
)

GROUP = Variable(
    name="group",
    label="Group",
    queries={
        "flux": _tag("group", 'r._measurement == "tallystream.lag.groups"'),
        "influxql": 'SHOW TAG VALUES FROM "tallystream.lag.groups" WITH KEY = "group"',
        "prometheus": "label_values(tallystream_group_status, group)",
    },
)

TOPIC = Variable(
    name="topic",
    label="Topic",
    queries={
        "flux": _tag("topic", 'r._measurement == "tallystream.lag" and r.group =~ /^${group:regex}$/'),
        "influxql": 'SHOW TAG VALUES FROM "tallystream.lag" WITH KEY = "topic" WHERE "group" =~ /^${group:regex}$/',
        "prometheus": 'label_values(kafka_consumergroup_group_topic_sum_lag{group=~"$group"}, topic)',
    },
)

EVENTS: dict[Flavour, str] = {
    "flux": flux.pipe(
        flux.selected('r._measurement == "tallystream.events" and r._field == "text" and r.app =~ /^${app:regex}$/'),
        'keep(columns: ["_time", "_value"])',
        "group()",
        'rename(columns: {_value: "text"})',
    ),
    "influxql": 'SELECT "text" FROM "tallystream.events" WHERE $timeFilter AND "app" =~ /^${app:regex}$/',
}
"""The query of the annotations, by flavour. Prometheus has no events."""
