"""The lag of consumer groups, read from a real broker."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from support.commands import command
from support.lag_broker import commit, fill, member
from support.wait import wait_until
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader
from tallystream_cli.servers.process import free_port
from tallystream_dashboards.lag.collector.kafka_admin import BrokerUnavailableError, OffsetFetcher, StoppedError
from tallystream_dashboards.lag.collector.settings import Patterns
from tallystream_dashboards.lag.reader import read_groups
from tallystream_dashboards.lag.storage import LAG

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_cli.servers.broker import KafkaBroker
    from tallystream_dashboards.lag.offsets import GroupOffsets

pytestmark = pytest.mark.integration


def fetch(admin: AdminClient, *include: str, exclude: tuple[str, ...] = ()) -> dict[str, GroupOffsets]:
    """Return the groups' offsets. Retry while there are problems, such as a coordinator that is loading."""
    deadline = time.monotonic() + 30
    fetcher = OffsetFetcher(admin, timeout=30, stopping=lambda: False)
    while (offsets := fetcher.fetch(Patterns(include, exclude))).problems:
        assert time.monotonic() < deadline, offsets.problems
        time.sleep(0.5)
    return {group.group: group for group in offsets.groups}


def test_a_member_without_a_commit_has_partitions(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """Before the first commit a group's partitions are those of its members, without a lag."""
    topic, group = topic_prefix + "events", topic_prefix + "new"
    fill(broker, admin, topic, partitions=2, records=5)
    with member(broker, group, topic) as consumer:
        wait_until(lambda: consumer.poll(0.1) is not None, 60, "the member has a record")
        found = fetch(admin, group)[group]
    assert [one.lag for one in found.partitions] == [None, None]


def test_a_deleted_topic_has_no_lag(broker: KafkaBroker, admin: AdminClient, topic_prefix: str) -> None:
    """After a topic is deleted, only the group's other topic has lag."""
    kept, deleted, group = topic_prefix + "kept", topic_prefix + "deleted", topic_prefix + "billing"
    for topic in (kept, deleted):
        fill(broker, admin, topic, partitions=1, records=4)
        commit(admin, group, topic, {0: 1})
    assert {one.topic for one in fetch(admin, group)[group].partitions} == {kept, deleted}
    admin.delete_topics([deleted])[deleted].result(30)
    wait_until(
        lambda: {one.topic for one in fetch(admin, group)[group].partitions} == {kept}, 60, "the topic is deleted"
    )


def test_an_unavailable_broker_is_an_error() -> None:
    """The error is one that can be retried, and is raised within the timeout."""
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(BrokerUnavailableError):
        OffsetFetcher(admin, timeout=2, stopping=lambda: False).fetch(Patterns())


def test_a_stop_does_not_wait_for_the_broker() -> None:
    """A stop ends a request that no broker answers long before its timeout."""
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(StoppedError):
        OffsetFetcher(admin, timeout=600, stopping=lambda: True).fetch(Patterns())


def test_the_collector_writes_lag_to_the_store_and_serves_it(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """The command writes lag to the store and serves it, marks a deleted group, and exits with 0 on SIGTERM."""
    topic, group, deleted = topic_prefix + "events", topic_prefix + "billing", topic_prefix + "deleted"
    fill(broker, admin, topic, partitions=1, records=100)
    commit(admin, group, topic, {0: 30})
    commit(admin, deleted, topic, {0: 90})
    spec, ready, log, port = f"local:{tmp_path / 'store.db'}", tmp_path / "ready", tmp_path / "log", free_port()
    arguments = ["lag", "collect", "--bootstrap-servers", broker.bootstrap_servers, "--store", spec]
    arguments += ["--interval", "1", "--include", topic_prefix + "*", "--ready-file", str(ready)]
    arguments += ["--http-port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command(*arguments), stdout=output, stderr=output)

    def served(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.read().decode()

    def get(path: str = "") -> dict[str, Any]:
        return json.loads(served(f"/v1/groups{path}"))

    reader = open_reader(StoreSettings.parse(spec))
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, 60, "the first round is written")
        assert process.poll() is None, log.read_text()
        assert {one["group"]: one["lag"] for one in get()["groups"]} == {group: 70, deleted: 10}
        assert f'kafka_consumergroup_group_sum_lag{{group="{group}"}} 70' in served("/metrics")
        assert json.loads(served("/readyz")) == {"ok": True}
        commit(admin, group, topic, {0: 95})
        wait_until(lambda: get("/" + group)["lag"] == 5, 60, "the commit is read")
        (partition,) = get("/" + group)["partitions"]
        assert (partition["committed"], partition["end"], partition["lag"]) == (95, 100, 5)
        admin.delete_consumer_groups([deleted])[deleted].result(30)
        wait_until(lambda: get("/" + deleted)["gone"], 60, "the group is found to be gone")
        now_ms = round(time.time() * 1000)
        wait_until(
            lambda: (
                [(s.group, s.gone) for s in read_groups(reader, at_ms=now_ms + 60_000)]
                == [(deleted, True), (group, False)]
            ),
            60,
            "the store says the same",
        )
        found = reader.read(LAG, ["lag"], start_ms=0, end_ms=2**62, tags={"group": group, "topic": topic})
        assert [found[0].values[0], found[0].values[-1]] == [70, 5]
    finally:
        reader.close()
        process.terminate()
        code = process.wait(30)
    assert code == 0, log.read_text()
