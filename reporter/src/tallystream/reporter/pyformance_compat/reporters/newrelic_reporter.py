"""Absent: pyformance's reporter to New Relic's plugin API."""

from __future__ import annotations

raise ImportError(
    "NewRelicReporter is not offered by tallystream.reporter.pyformance_compat: "
    "report to Kafka, InfluxDB or Graphite, or subclass Reporter."
)
