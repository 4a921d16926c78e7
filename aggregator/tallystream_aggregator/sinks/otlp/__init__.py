"""The receiver of OpenTelemetry metrics, over OTLP/HTTP: the sink and the request that it sends."""
