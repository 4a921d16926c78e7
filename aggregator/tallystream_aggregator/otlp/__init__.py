"""OpenTelemetry's metrics (OTLP) as snapshots of the table: docs/otlp.md has the mapping, point by point."""
