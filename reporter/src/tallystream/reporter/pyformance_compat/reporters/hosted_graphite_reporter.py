"""Absent: pyformance's reporter to Hosted Graphite's HTTP API."""

from __future__ import annotations

raise ImportError(
    "HostedGraphiteReporter is not offered by tallystream.reporter.pyformance_compat: "
    "use CarbonReporter with the key as its prefix, or subclass Reporter."
)
