"""A program written for pyformance, with one changed import, on a real broker; the table sums its records."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from influxdb_client import InfluxDBClient

from support.kafka import read_topic
from support.steps import run
from tallystream import pyformance_compat as pyformance
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.table import Record, State, Table, TableSettings

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from support.stores import Influx
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration

PROGRAM = """
    import os, sys
    from tallystream import KafkaReporter
    from tallystream import pyformance_compat as pyformance

    @pyformance.time_calls
    def work(jobs):
        jobs.inc()
        pyformance.counter("records").inc(10)
        pyformance.meter("requests").mark(2)
        pyformance.histogram("sizes").add(40)
        pyformance.gauge("queue").set_value(3)

    bootstrap_servers, topic, instance = sys.argv[1:]
    registry = pyformance.global_registry()
    registry.app = "shop"
    with KafkaReporter(registry, bootstrap_servers=bootstrap_servers, instance=instance, topic=topic) as reporter:
        jobs = pyformance.counter("jobs")
        work(jobs)
        assert reporter.report_now(timeout=60)
        jobs.dec()                                      # becomes an updown
        pyformance.histogram("sizes").clear()
        pyformance.clear()                              # back to zero; the record continues to count
        jobs = pyformance.counter("jobs")
        jobs.dec(0)
        work(jobs)
        assert reporter.report_now(timeout=60)
        sys.stdout.flush()
        if instance == "killed":
            os._exit(9)
        child = os.fork()
        work(jobs)                                      # in both: the child has its own life
        jobs.inc(child and 100)
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert reporter.failures == 0
"""


def test_a_program_written_for_pyformance(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """The counts of an instance that exits, of its forked child and of a killed instance are summed exactly.

    After a metric or the registry is cleared no count decreases, so the table refuses nothing. A counter that decreased
    is an updown, whose sum has the value of each living instance.
    """
    topics = Topics(topic_prefix)
    create_topics(admin, topics)
    for instance, code in (("first", 0), ("killed", 9)):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), broker.bootstrap_servers, topics.metrics, instance],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stderr

    read = read_topic(broker.bootstrap_servers, topics.metrics)
    assert all(one.key is not None for one in read)
    changes = run(
        Table(State(), TableSettings()),
        (Record(topics.metrics, one.partition, one.offset, one.timestamp_ms, one.key, one.value) for one in read),
    )
    assert [letter.reason for letter in changes.dead] == []
    found = {(row.name, row.type): row for row in (sums.decode(total.value()) for total in changes.totals)}
    assert {row.app for row in found.values()} == {"shop"}
    assert found["records", "counter"].count == 10 * 3 + 10 + 10 * 2  # first, its child, killed
    assert found["requests", "meter"].count == 2 * 6
    assert (found["sizes", "histogram"].count, found["sizes", "histogram"].sum) == (6, 240)
    assert found["work_calls", "timer"].count == 6
    # Published before the first dec(), by the first instance and the killed one; the child's was never a counter.
    assert found["jobs", "counter"].count == 2
    assert found["jobs", "updown"].sum == 1  # only the killed one sent no final record
    assert found["queue", "gauge"].number == 1


def test_its_reporter_to_influxdb(influxdb: Influx, topic_prefix: str) -> None:
    """InfluxDB 2.x accepts its points at the API of 1.x, with the token as the password, also for a hostile key."""
    key = topic_prefix + 'a b,c=d;e"f\ng\\'
    registry = pyformance.MetricsRegistry()
    registry.counter(key).inc(5)
    registry.gauge("nan")
    where = urlsplit(influxdb.url)
    reporter = pyformance.reporters.InfluxReporter(
        registry,
        server=where.hostname,
        port=where.port,
        protocol=where.scheme,
        database=influxdb.bucket,
        username="any",
        password=influxdb.token,
    )
    reporter.report_now()
    reporter.report_now(pyformance.MetricsRegistry())  # an empty registry is no error
    assert reporter.failures == 0
    with InfluxDBClient(influxdb.url, influxdb.token, org=influxdb.org) as client:
        tables = client.query_api().query(
            f'from(bucket: "{influxdb.bucket}") |> range(start: -1h, stop: 1m)'  # a rounded time can be later
            f' |> filter(fn: (r) => r._measurement =~ /^{topic_prefix}/ or r._measurement == "nan")'
        )
    found = [(row.get_measurement(), row.get_field(), row.get_value()) for table in tables for row in table.records]
    assert found == [(key.replace("\n", "\\n") + "_", "count", 5.0)]
