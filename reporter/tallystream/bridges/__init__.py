"""Read-only bridges: what other libraries count in the process is reported too, at each snapshot.

`bridges.prometheus` reads prometheus_client, `bridges.opentelemetry` the OpenTelemetry SDK. Neither is a dependency:
the library is imported when its bridge is made. A library of another kind needs one method: see
`tallystream.bridges.base.Source`.
"""
