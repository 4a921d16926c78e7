"""A query's own health: figures for Prometheus and for our own reporter, `/healthz` and `/readyz`. docs/health.md."""

from __future__ import annotations

from tallystream_aggregator.health.health import Health, HealthSettings

__all__ = ["Health", "HealthSettings"]
