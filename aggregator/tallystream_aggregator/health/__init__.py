"""The health of a command: its internal metrics, `/healthz` and `/readyz` (docs/health.md)."""

from __future__ import annotations

from tallystream_aggregator.health.health import Health, HealthSettings

__all__ = ["Health", "HealthSettings"]
