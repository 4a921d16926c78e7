"""`doctor`: its findings, and the checks of brokers and stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.otlp_receiver import Receiver
from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.kafka.lease import GROUP
from tallystream_aggregator.kafka.topics import Topics, policies
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.commands.doctor import as_json, as_table
from tallystream_cli.doctor import broker, store
from tallystream_cli.doctor.broker import Brokers
from tallystream_cli.doctor.findings import Finding, failed, guarded, not_checked, ok
from tallystream_cli.doctor.run import package

FINDINGS = [ok("Python", "3.11"), failed("broker", "none", "start it"), not_checked("store", "none is named")]


def test_each_finding_is_a_line_with_its_remedy() -> None:
    """The last line has the number of each status."""
    assert as_table(FINDINGS).splitlines() == [
        "status       check   finding",
        "ok           Python  3.11",
        "failed       broker  none → start it",
        "not checked  store   none is named",
        "ok: 1, failed: 1, not checked: 1",
    ]
    output = json.loads(as_json(FINDINGS))
    assert output["ok"] is False
    assert output["findings"][1] == {"status": "failed", "check": "broker", "found": "none", "remedy": "start it"}


def test_a_check_that_raises_is_a_finding() -> None:
    """An error of a setting has its remedy, any other error its text."""

    def wrong() -> Iterator[Finding]:
        raise ConfigError("--x", "1", "give 2")
        yield

    def damaged() -> Iterator[Finding]:
        raise OSError(5, "Input/output error")
        yield

    assert guarded("c", wrong) == [failed("c", "--x: 1", "give 2")]
    (found,) = guarded("c", damaged)
    assert (found.status, found.found) == ("failed", "[Errno 5] Input/output error")


def test_a_missing_package_is_a_warning() -> None:
    """Without PySpark or Streamlit, as in the images, other commands run."""
    assert package("page", "no_such_package", "the page", "install it").status == "warning"
    assert package("Spark", "pyspark", "aggregate", "install it").status == "ok"


NAMES = Topics("p-")
POLICIES = policies(NAMES)


def topic(partitions: int = 1, *, leader: int = 1) -> Any:
    """Return the description of a topic."""
    numbered = [SimpleNamespace(id=number, leader=SimpleNamespace(id=leader)) for number in range(partitions)]
    return SimpleNamespace(partitions=numbered)


def group(*members: tuple[str, list[int]]) -> Any:
    """Return the description of a group; members are hosts and partitions."""
    found = [
        SimpleNamespace(host=f"/{host}", assignment=SimpleNamespace(topic_partitions=assigned))
        for host, assigned in members
    ]
    return SimpleNamespace(members=found)


def cluster(**changes: Any) -> Brokers:
    """Return brokers with all topics, as the aggregator creates them, and the group of the lease without members."""
    made = Brokers("b:9092", 1, {name: topic() for name in POLICIES}, POLICIES, {NAMES.prefix + GROUP: group()})
    return replace(made, **changes)


def with_topic(name: str, changed: Any) -> Brokers:
    """Return the brokers with one changed topic."""
    return cluster(topics={**cluster().topics, name: changed})


def finding_of(found: Brokers, name: str) -> Any:
    """Return the finding about one topic."""
    return next(one for one in broker.topics(found, NAMES) if one.check == f"topic {name}")


def test_missing_topics_are_a_warning_before_the_first_start_only() -> None:
    """Without any topic nothing has run yet; a single missing one is an error."""
    (none,) = broker.topics(cluster(topics={}), NAMES)
    assert none.status == "warning"
    rest = {name: found for name, found in cluster().topics.items() if name != NAMES.ledger}
    assert finding_of(cluster(topics=rest), NAMES.ledger).status == "failed"
    assert finding_of(cluster(topics=rest, refused=frozenset([NAMES.ledger])), NAMES.ledger).status == "not checked"


@pytest.mark.parametrize(
    ("key", "value", "status"),
    [
        ("cleanup.policy", "compact", "failed"),
        ("message.timestamp.type", "CreateTime", "failed"),
        ("retention.ms", "1000", "warning"),
        ("retention.ms", "604800001", "ok"),
        ("retention.ms", "-1", "ok"),
    ],
)
def test_a_configuration_is_compared_with_the_policy(key: str, value: str, status: str) -> None:
    """A wrong word fails, a lower number is a warning, and a higher one is the operator's choice."""
    found = finding_of(
        cluster(configs=POLICIES | {NAMES.metrics: POLICIES[NAMES.metrics] | {key: value}}), NAMES.metrics
    )
    assert found.status == status
    assert (f"--add-config {key}=" in found.remedy) is (status != "ok")


def test_an_unreadable_configuration_is_not_checked() -> None:
    """The permission to see it is named."""
    found = finding_of(cluster(configs={}), NAMES.agg)
    assert (found.status, found.remedy) == ("not checked", "allow DescribeConfigs on p-metrics-agg")


def test_partitions() -> None:
    """A missing leader fails, and so does a second partition of a topic that must have one."""
    assert finding_of(with_topic(NAMES.metrics, topic(leader=-1)), NAMES.metrics).status == "failed"
    assert finding_of(with_topic(NAMES.agg, topic(2)), NAMES.agg).status == "failed"
    assert finding_of(with_topic(NAMES.metrics, topic(2)), NAMES.metrics).status == "ok"


def test_the_lease_tells_whether_an_aggregator_runs() -> None:
    """Its holder is named. Without one, nothing is summed."""
    held = {NAMES.prefix + GROUP: group(("10.0.0.7", [0]), ("10.0.0.8", []))}
    running = broker.lease(cluster(groups=held), NAMES)
    assert (running.status, running.found) == ("ok", "one runs on 10.0.0.7 and has the lease, 1 other waiting")
    assert broker.lease(cluster(), NAMES).status == "warning"
    refused = cluster(groups={}, refused=frozenset([NAMES.prefix + GROUP]))
    assert broker.lease(refused, NAMES).status == "not checked"


def test_topics_as_the_aggregator_creates_them_are_ok() -> None:
    """There is one line for each. A table of one shard has no topic for shards, which is not missed."""
    everything = cluster().topics
    for topics in (everything, {name: found for name, found in everything.items() if name != NAMES.shards}):
        findings = broker.topics(cluster(topics=topics), NAMES)
        assert [(one.status, one.check) for one in findings] == [("ok", f"topic {name}") for name in topics]


@pytest.mark.parametrize(
    ("opened", "status", "text"),
    [
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "not checked", "may not use"),
        ("INVALID_TRANSACTION_TIMEOUT", "failed", "transaction.max.timeout.ms of the brokers is not 30000"),
        ("_TIMED_OUT", "failed", "_TIMED_OUT"),
        ("", "ok", "they can be begun"),
    ],
)
def test_transactions(opened: str, status: str, text: str) -> None:
    """The brokers must allow the timeout of our transactions."""
    finding = broker.transactions(cluster(transactions=opened))
    assert (finding.status, text in finding.found) == (status, True), finding


REFUSED = ConfigError("INFLUXDB_TOKEN", "***", "InfluxDB refuses it")
AWAY = SinkUnavailableError("InfluxDB: the disk is full.")


def test_another_file_is_no_store(tmp_path: Path) -> None:
    """A file of another program is a wrong setting, and so is one that can't be looked for."""
    path = tmp_path / "store.db"
    path.write_bytes(b"#!/bin/sh\n" * 100)
    for wrong, reason in (path, "it is not a store"), (tmp_path / ("n" * 300), "File name too long"):
        with pytest.raises(ConfigError, match=reason):
            list(store.check_store(StoreSettings.parse(f"local:{wrong}", env={})))


@pytest.mark.parametrize(
    ("read", "write", "status", "found"),
    [
        (None, None, "ok", "influxdb:http://i:8086: the token may read and write the bucket"),
        (None, REFUSED, "ok", "influxdb:http://i:8086: the token may read the bucket"),
        (REFUSED, None, "ok", "influxdb:http://i:8086: the token may write the bucket"),
        (REFUSED, REFUSED, "failed", "INFLUXDB_TOKEN: ***"),
        (None, AWAY, "failed", "InfluxDB: the disk is full"),
        (AWAY, None, "failed", "InfluxDB: the disk is full"),
    ],
)
def test_the_rights_of_a_token_are_named(
    read: TallystreamError | None, write: TallystreamError | None, status: str, found: str
) -> None:
    """One right is enough, because each command can have its own token. What fails otherwise is no matter of rights."""
    settings = StoreSettings("influxdb", "http://i:8086", token="t", org="o")
    assert store.rights({"read": read, "write": write}, settings)[::2] == (status, found)


def test_an_otlp_receiver_must_answer() -> None:
    """An answer is ok, a closed port fails, and Prometheus' address is the shipper's own."""
    with Receiver() as receiver:
        settings = StoreSettings.parse(f"otlp:http://{receiver.address}", env={})
        (found,) = store.check_store(settings)
        assert found.status == "ok"
    with pytest.raises(SinkUnavailableError):
        list(store.check_store(settings))
    (scraped,) = store.check_store(StoreSettings.parse("prometheus:9464", env={}))
    assert scraped.status == "not checked"
