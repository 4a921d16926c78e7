"""Absent: pyformance's reporter to OpenTSDB."""

from __future__ import annotations

raise ImportError(
    "OpenTSDBReporter is not offered by tallystream.reporter.pyformance_compat: "
    "report to Kafka, InfluxDB or Graphite, or subclass Reporter."
)
