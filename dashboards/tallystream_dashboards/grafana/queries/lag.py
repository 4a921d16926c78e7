"""What the panels of the dashboard Lag have in common: which groups and partitions, and a field of groups over time."""

from __future__ import annotations

from tallystream_dashboards.grafana.model.query import Queries, Query
from tallystream_dashboards.grafana.queries import flux, influxql

EMPTY = "No lag in this time: does tallystream lag collect run (with --http-port, for Prometheus)? Choose other groups."
GROUPS = 'r._measurement == "tallystream.lag.groups" and r.group =~ /^${group:regex}$/'
PARTS = 'r._measurement == "tallystream.lag" and r.group =~ /^${group:regex}$/ and r.topic =~ /^${topic:regex}$/'
GROUPS_QL = '"tallystream.lag.groups"'
GROUP_QL = '"group" =~ /^${group:regex}$/'
PART_QL = f'{GROUP_QL} AND "topic" =~ /^${{topic:regex}}$/'
GROUP = 'group=~"$group"'
TOPIC = 'topic=~"$topic"'


def by_group(field: str, prometheus: str, *, legend: str = "{group}") -> Queries:
    """Return a field of the groups over time."""
    return {
        "flux": (Query(flux.each(f'{GROUPS} and r._field == "{field}"', labels=("group",)), legend=legend),),
        "influxql": (Query(influxql.line(GROUPS_QL, field, where=GROUP_QL, labels=("group",)), legend=legend),),
        "prometheus": (Query(prometheus, legend=legend),),
    }
