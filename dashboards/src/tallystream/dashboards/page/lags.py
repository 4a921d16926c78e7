"""Lag as the page shows it, worked out from what a PointReader returns. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream.dashboards.page.lines import Line, add_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.aggregator.sinks.base import Series

FIELDS = ("committed", "end", "lag", "members")
CARRY_MS = 90_000
"""The slowest collector writes every 60 s: what it has not mentioned for longer than this is gone."""

ROLES = {"tallystream-aggregator": "aggregator", "tallystream-shipper": "shipper"}
"""Tallystream's own consumer groups; every other one is a consumer."""

Fields = Mapping[str, "Series"]
"""The fields of one partition of one group, over time."""
Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition of one group, newest values; `lag` is None where the group has committed nothing valid."""

    topic: str
    partition: int
    lag: int | None
    committed: int | None
    end: int | None
    seen_ms: int


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One consumer group, newest values: `lag` over the partitions where it is known; `unknown` counts the others."""

    group: str
    role: str
    lag: int | None
    worst: int | None
    partitions: int
    unknown: int
    seen_ms: int
    gone: bool
    trend: Line


def role(group: str) -> str:
    """Say what a group is; a prefix that keeps several systems apart changes nothing."""
    return next((what for name, what in ROLES.items() if group.endswith(name)), "consumer")


def by_group(series: Iterable[Series]) -> dict[str, dict[Place, dict[str, Series]]]:
    """Gather the fields of every partition of every group; empty series are left out."""
    found: dict[str, dict[Place, dict[str, Series]]] = {}
    for one in series:
        if one.times_ms:
            place = (one.tags["topic"], int(one.tags["partition"]))
            found.setdefault(one.tags["group"], {}).setdefault(place, {})[one.field] = one
    return found


def partition_rows(partitions: Mapping[Place, Fields]) -> list[PartitionRow]:
    """Return a group's partitions, worst first; those whose lag is unknown come before all others."""
    found = [_partition(place, fields) for place, fields in partitions.items()]
    return sorted(found, key=lambda row: (row.lag is not None, -(row.lag or 0), row.topic, row.partition))


def group_rows(groups: Mapping[str, Mapping[Place, Fields]]) -> list[GroupRow]:
    """Return every group, worst first. A group that the newest rounds do not mention any more is `gone`."""
    found = [(group, partition_rows(partitions), partitions) for group, partitions in groups.items()]
    newest = max((row.seen_ms for _, rows, _ in found for row in rows), default=0)
    return sorted((_group(*one, newest) for one in found), key=lambda row: (-(row.lag or 0), row.group))


def group_line(group: str, partitions: Mapping[Place, Fields]) -> Line:
    """Return the group's lag over time: the sum over its partitions."""
    return add_up(group, partition_lines(partitions), carry_ms=CARRY_MS)


def partition_lines(partitions: Mapping[Place, Fields]) -> list[Line]:
    """Return the lag over time of each partition of a group that has ever had one."""
    return [
        Line(f"{topic}/{number}", list(fields["lag"].times_ms), [int(value) for value in fields["lag"].values])
        for (topic, number), fields in sorted(partitions.items())
        if "lag" in fields
    ]


def _partition(place: Place, fields: Fields) -> PartitionRow:
    seen = max(series.times_ms[-1] for series in fields.values())
    now = {name: int(series.values[-1]) for name, series in fields.items() if series.times_ms[-1] == seen}
    # A field that the newest point does not have is not true any more, whatever it was before.
    return PartitionRow(*place, now.get("lag"), now.get("committed"), now.get("end"), seen)


def _group(group: str, rows: list[PartitionRow], partitions: Mapping[Place, Fields], newest: int) -> GroupRow:
    seen = max(row.seen_ms for row in rows)
    # What later rounds no longer mention (a deleted topic) is history, no part of the lag of now.
    current = [row for row in rows if seen - row.seen_ms <= CARRY_MS]
    known = [row.lag for row in current if row.lag is not None]
    return GroupRow(
        group=group,
        role=role(group),
        lag=sum(known) if known else None,
        worst=max(known) if known else None,
        partitions=len(current),
        unknown=len(current) - len(known),
        seen_ms=seen,
        gone=newest - seen > CARRY_MS,
        trend=group_line(group, partitions),
    )
