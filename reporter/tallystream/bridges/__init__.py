"""Read-only bridges: the metrics of other libraries in the process are included in each snapshot.

`bridges.prometheus` reads prometheus_client, and `bridges.opentelemetry` the OpenTelemetry SDK. Neither is a
dependency: the library is imported when its bridge is created. For other libraries, implement
`tallystream.bridges.base.Source`.
"""
