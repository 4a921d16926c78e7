"""Sinks: one protocol, and an implementation for each store. One contract test suite covers all of them."""

from __future__ import annotations

from tallystream_aggregator.sinks.base import Field, Point, PointReader, Refused, Series, Sink, SinkUnavailableError

__all__ = ["Field", "Point", "PointReader", "Refused", "Series", "Sink", "SinkUnavailableError"]
