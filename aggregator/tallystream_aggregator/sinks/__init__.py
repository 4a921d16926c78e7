"""Where sums go: one small protocol, and a sink for each store; a contract suite holds them all to it."""

from __future__ import annotations

from tallystream_aggregator.sinks.base import Field, Point, PointReader, Series, Sink, SinkUnavailableError

__all__ = ["Field", "Point", "PointReader", "Series", "Sink", "SinkUnavailableError"]
