"""The reporter to InfluxDB against a real server: stored types, special characters and errors."""

from __future__ import annotations

import pytest
from influxdb_client import InfluxDBClient

from support.stores import Influx
from tallystream import InfluxReporter, MetricRegistry

pytestmark = pytest.mark.integration


def test_points_are_stored_with_constant_types(influxdb: Influx, topic_prefix: str) -> None:
    """Counts are integers and other values floats, also a gauge of 3. Special characters create no second point."""
    app = topic_prefix + "app"
    registry = MetricRegistry(app)
    hostile = 'a b,c=d;e"f\ng\\ü'
    name = topic_prefix + "plain"
    registry.counter(name, tags={hostile: hostile, "end": "back\\", "empty": "", "forged": f"x\n{name} count=99i"}).inc(
        2
    )
    gauge = registry.gauge(topic_prefix + "gauge")
    gauge.set(3)
    with InfluxDBClient(influxdb.url, influxdb.token, org=influxdb.org) as client:
        reporter = InfluxReporter(
            registry,
            instance="i 1",
            url=influxdb.url,
            token=influxdb.token,
            org=influxdb.org,
            bucket=influxdb.bucket,
            own_metrics=False,
        )
        assert reporter.report_now(), reporter.last_error
        gauge.set(3.5)
        assert reporter.stop(), reporter.last_error
        tables = client.query_api().query(
            f'from(bucket: "{influxdb.bucket}") |> range(start: -1h) |> filter(fn: (r) => r.app == "{app}") |> last()'
        )
    found = {record.get_measurement(): record for table in tables for record in table.records}
    assert set(found) == {name, topic_prefix + "gauge"}
    assert found[topic_prefix + "gauge"].get_value() == 3.5
    point = found[name]
    assert (point.get_field(), point.get_value(), type(point.get_value())) == ("count", 2, int)
    written = hostile.replace("\n", "\\n")
    assert point.values[written] == written
    assert point.values["instance"] == "i 1"
    assert point.values["end"] == "back\\_"


def test_an_error_of_influxdb_is_reported_without_the_token(influxdb: Influx) -> None:
    """With a wrong token the report fails with InfluxDB's reason, and no message has the token."""
    registry = MetricRegistry("app")
    registry.counter("c").inc()
    reporter = InfluxReporter(registry, instance="i", url=influxdb.url, token="hush-hush", org=influxdb.org, bucket="b")
    assert not reporter.report_now()
    assert reporter.last_error is not None
    assert "401" in reporter.last_error
    assert "hush" not in reporter.last_error + repr(reporter)
    assert not reporter.stop()
