"""The page's tables as rows for CSV, and rows as CSV: exact values, and times in epoch milliseconds. Pure."""

from __future__ import annotations

import csv
import io
import unicodedata
from typing import TYPE_CHECKING, Any

from tallystream_dashboards.data.pipeline import role
from tallystream_dashboards.lag.formatting import group_json, partition_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream_dashboards.data.duplicates import CoveredOffsets
    from tallystream_dashboards.data.lines import ChartData
    from tallystream_dashboards.data.pipeline import Hop
    from tallystream_dashboards.data.sums import Metric
    from tallystream_dashboards.lag.state import GroupState, PartitionState
    from tallystream_dashboards.page.metrics_data import Event

Rows = list[dict[str, Any]]
_FORMULA = frozenset("=+-@\N{MINUS SIGN}")
_LEADING = ("Z", "C")
"""The Unicode categories of spaces and of control and format characters, which a spreadsheet may skip."""


def groups(states: Iterable[GroupState]) -> Rows:
    """Return a row for each group, with the names of `tallystream lag --json`."""
    return [{**group_json(state, partitions=False), "role": role(state.group)} for state in states]


def partitions(states: Iterable[PartitionState]) -> Rows:
    """Return a row for each partition, with the names of `tallystream lag GROUP --json`."""
    return [partition_json(state) for state in states]


def sums(metrics: Iterable[Metric]) -> Rows:
    """Return a row for each sum."""
    return [
        {
            "app": metric.app,
            "name": metric.name,
            "type": metric.type,
            "tags": metric.tags_text,
            "value": metric.value.last,
            "mean": metric.mean,
            "instances": metric.newest("instances"),
            "lives": metric.newest("lives"),
            "changed_ms": metric.changed_ms,
        }
        for metric in metrics
    ]


def hops(pipeline: Iterable[Hop]) -> Rows:
    """Return a row for each hop."""
    return [
        {
            "hop": hop.name,
            "status": hop.status.name if hop.status is not None else None,
            "delay_s": hop.delay_s,
            "why": hop.detail,
        }
        for hop in pipeline
    ]


def events(events: Iterable[Event]) -> Rows:
    """Return a row for each event, newest first."""
    newest = sorted(events, key=lambda event: -event.ts_ms)
    return [{"ts_ms": event.ts_ms, "kind": event.kind, "text": event.text} for event in newest]


def covered_offsets(partitions: Iterable[CoveredOffsets]) -> Rows:
    """Return a row for each partition with positions."""
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "start": one.start,
            "position": one.position,
            "offsets": one.count,
        }
        for one in partitions
    ]


def points(chart: ChartData) -> Rows:
    """Return a row for each point of a chart's lines."""
    return [
        {"series": line.label, "ts_ms": ts_ms, "value": value}
        for line in chart.lines
        for ts_ms, value in zip(line.times_ms, line.values, strict=True)
    ]


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return the rows as CSV (RFC 4180), with the names of the first row's values as header.

    Numbers have all their digits. All cells are quoted, so that no separator of any locale divides one. A text that a
    spreadsheet might take for a formula begins with an apostrophe.
    """
    out = io.StringIO()
    names = list(rows[0]) if rows else []
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and _is_formula(value):
        return f"'{value}"
    return "" if value is None else value


def _is_formula(text: str) -> bool:
    first = next((one for one in text if not unicodedata.category(one).startswith(_LEADING)), "")
    # NFKC makes = + - @ of the full-width and small forms.
    return text.startswith(("\t", "\r", "\n")) or not _FORMULA.isdisjoint(unicodedata.normalize("NFKC", first))
