"""The health of a command: its internal metrics, `/healthz` and `/readyz` (docs/configuration.md)."""

from __future__ import annotations

from tallystream_aggregator.health.health import Health, HealthSettings

__all__ = ["Health", "HealthSettings"]
