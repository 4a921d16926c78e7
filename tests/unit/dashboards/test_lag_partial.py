"""Rounds in which only a part of Kafka answers: what was not read keeps its last state and is marked as stale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_dashboards.lag.collector import kafka_admin
from tallystream_dashboards.lag.collector.kafka_admin import NAMELESS, BrokerUnavailableError, OffsetFetcher
from tallystream_dashboards.lag.collector.recorder import Recorder
from tallystream_dashboards.lag.collector.settings import Patterns
from tallystream_dashboards.lag.collector.tracker import LagTracker, Round
from tallystream_dashboards.lag.exposition import exposition
from tallystream_dashboards.lag.offsets import PartitionId
from tallystream_dashboards.lag.state import GroupState, _not_read
from tallystream_dashboards.lag.status import Rules, Status
from tallystream_dashboards.lag.storage import group_json

UNAVAILABLE = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)


@dataclass
class Group:
    """A group's committed offsets, and the partitions assigned to its only member; none: the group has no member."""

    committed: dict[PartitionId, int]
    assigned: set[PartitionId] = field(default_factory=set)


class Cluster:
    """A fake AdminClient.

    `fail` has the requests that get no response: ("describe", group), ("offsets", group), ("commit", group, partition),
    ("topic", topic), ("end", topic, partition). `unlisted` are groups that the listing does not have; with
    `listing_fails` it has an error. `committed_of` are the groups whose committed offsets were requested in the newest
    round. `on_request` is called with "groups" or "ends" before the response to that request.
    """

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.ends: dict[PartitionId, int] = {}
        self.fail: set[tuple[object, ...]] = set()
        self.error = UNAVAILABLE
        self.unlisted: set[str] = set()
        self.listing_fails = False
        self.committed_of: set[str] = set()
        self.on_request: Callable[[str], None] = lambda _: None

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        """Return the groups, and an error if `listing_fails`."""
        self.committed_of.clear()
        self.on_request("groups")
        valid = [SimpleNamespace(group_id=name) for name in self.groups if name not in self.unlisted]
        return _done(SimpleNamespace(valid=valid, errors=[KafkaException(UNAVAILABLE)] if self.listing_fails else []))

    def describe_consumer_groups(self, names: Iterable[str], **_: Any) -> dict[str, Future[Any]]:
        """Return members and state of each group. A group that does not exist is DEAD, as in Kafka."""
        return {name: self._answer(("describe", name), self._description(name)) for name in names}

    def list_consumer_group_offsets(self, requests: Iterable[Any], **_: Any) -> dict[str, Future[Any]]:
        """Return the committed offsets."""
        answers = {}
        for request in requests:
            name = request.group_id
            self.committed_of.add(name)
            offsets = [
                SimpleNamespace(topic=topic, partition=number, offset=offset, error=self._error("commit", name, number))
                for (topic, number), offset in self.groups.get(name, Group({})).committed.items()
            ]
            answers[name] = self._answer(("offsets", name), SimpleNamespace(topic_partitions=offsets))
        return answers

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        """Return the partitions of the topics."""
        answers: dict[str, Future[Any]] = {}
        for topic in topics.topic_names:
            partitions = [SimpleNamespace(id=number) for name, number in sorted(self.ends) if name == topic]
            known = self._answer(("topic", topic), SimpleNamespace(partitions=partitions))
            answers[topic] = known if partitions else _failed(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return answers

    def list_offsets(self, request: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        """Return starts or ends."""
        answers = {}
        if kafka_admin.LATEST in request.values():
            self.on_request("ends")
        for one, spec in request.items():
            partition = (one.topic, one.partition)
            offset = self.ends[partition] if spec is kafka_admin.LATEST else 0
            answers[one] = self._answer(("end", *partition), SimpleNamespace(offset=offset))
        return answers

    def _description(self, name: str) -> SimpleNamespace:
        group = self.groups.get(name)
        if group is None:
            return SimpleNamespace(members=[], state=SimpleNamespace(name="DEAD"))
        partitions = [SimpleNamespace(topic=topic, partition=number) for topic, number in group.assigned]
        member = SimpleNamespace(assignment=SimpleNamespace(topic_partitions=partitions))
        state = SimpleNamespace(name="STABLE" if partitions else "EMPTY")
        return SimpleNamespace(members=[member] if partitions else [], state=state)

    def _answer(self, request: tuple[object, ...], answer: Any) -> Future[Any]:
        return _failed(self.error) if request in self.fail else _done(answer)

    def _error(self, *request: object) -> KafkaError | None:
        return UNAVAILABLE if request in self.fail else None


def _done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


def _failed(error: KafkaError) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(error))
    return future


T0 = 1_700_000_100_000
RULES = Rules(window_s=100)


class System:
    """A cluster with the groups "slow", whose partition 1 stalls, and "well", a collector and a store."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster()
        for name in ("slow", "well"):
            offsets = {(name, 0): 5, (name, 1): 5}
            self.cluster.groups[name] = Group(dict(offsets), set(offsets))
            self.cluster.ends |= offsets
        self.second = self.clients = 0
        self.path = folder / "store.db"
        store = LocalStore(self.path, retention_ms=0)
        store.setup()
        store.close()
        self.restart()

    def restart(self, *, load: bool = True, exclude: tuple[str, ...] = ()) -> None:
        """Start a new collector, which loads its history from the store, if it may read it."""
        self.recorder = Recorder()
        fetcher = OffsetFetcher(self.connect, timeout=5, stopping=lambda: False, clock=self.clock)
        self.tracker = LagTracker(fetcher, Patterns(("*", ""), exclude), RULES, clock=self.clock)
        if load:
            reader = LocalStore(self.path)
            self.tracker.load(reader)
            reader.close()

    def connect(self) -> AdminClient:
        """Return a client."""
        self.clients += 1
        return cast("AdminClient", self.cluster)

    def clock(self) -> float:
        """Return the collector's time, epoch seconds."""
        return T0 / 1000 + self.second

    def run(self, rounds: int = 1) -> Round:
        """Run rounds, one every five seconds. Each record is consumed at once, except those of slow/1."""
        store = LocalStore(self.path, retention_ms=0)
        for _ in range(rounds):
            self.second += 5
            for partition in self.cluster.ends:
                self.cluster.ends[partition] += 3
                for group in self.cluster.groups.values():
                    if partition in group.committed and partition != ("slow", 1):
                        group.committed[partition] += 3
            result = self.tracker.round()
            store.write(self.recorder.points(result))
        store.close()
        return result

    @property
    def now_ms(self) -> int:
        """The collector's time, epoch ms."""
        return T0 + self.second * 1000


@pytest.fixture
def system(tmp_path: Path) -> System:
    """Return a system in which "slow" has been ERR for a while."""
    system = System(tmp_path)
    result = system.run(30)
    statuses = {one.group: one.evaluation.status for one in result.states}
    assert statuses == {"slow": Status.ERR, "well": Status.OK}
    return system


def state(result: Round, group: str) -> GroupState:
    (one,) = [one for one in result.states if one.group == group]
    return one


UNREAD: dict[str, set[tuple[object, ...]]] = {
    "listing": {("describe", "slow"), ("offsets", "slow")},
    "coordinator": {("describe", "slow"), ("offsets", "slow")},
    "commits of the group": {("offsets", "slow")},
    "commit of the partition": {("commit", "slow", 1)},
    "topic": {("topic", "slow")},
    "ends of the partition": {("end", "slow", 1)},
}


@pytest.mark.parametrize("what", UNREAD)
def test_a_group_that_was_not_read_keeps_its_alert(system: System, what: str) -> None:
    """However long a response is missing, /metrics and JSON have ERR, its time, and "not read"."""
    before = state(system.run(), "slow")
    system.cluster.fail = UNREAD[what]
    system.cluster.unlisted = {"slow"} if what in ("listing", "coordinator") else set()
    system.cluster.listing_fails = what == "listing"
    result = system.run(60)
    slow = state(result, "slow")
    assert (slow.gone, slow.evaluation.status, slow.since_ms) == (False, Status.ERR, before.since_ms)
    assert "not read" in slow.evaluation.reason
    assert group_json(slow, partitions=True)["stale"]
    (stalled,) = [one for one in slow.partitions if one.partition == 1]
    assert (stalled.name, stalled.evaluation.status) == ("slow/1", Status.STALL)
    assert "not read in the newest round; before: " in stalled.evaluation.reason
    assert slow.seen_ms in (before.seen_ms, system.now_ms)
    assert result.problems
    text = exposition(result.states, result.bounds, result.ts_ms).text
    assert 'tallystream_group_status{group="slow",status="ERR"} 1.0\n' in text
    assert 'kafka_consumergroup_group_lag{group="slow",partition="1",topic="slow"}' in text
    assert 'tallystream_group_stale{group="slow"} 1.0\n' in text
    assert 'tallystream_group_stale{group="well"} 0.0\n' in text
    well = state(result, "well")
    assert (well.evaluation.status, well.evaluation.reason) == (
        Status.OK,
        "All 2 partitions are OK. well/0: The lag is 0.",
    )
    system.cluster.fail, system.cluster.unlisted, system.cluster.listing_fails = set(), set(), False
    slow = state(system.run(), "slow")
    assert (slow.evaluation.status, slow.since_ms, slow.stale) == (Status.ERR, before.since_ms, False)
    assert "not read" not in slow.evaluation.reason


def test_a_reason_names_a_few_of_the_partitions_that_were_not_read() -> None:
    """The others are a number."""
    assert _not_read(["a/0", "a/1", "a/2"]).endswith(": a/0, a/1, a/2.")
    assert _not_read(["a/0", "a/1", "a/2", "b/0", "b/1"]).endswith(": a/0, a/1, a/2 and 2 more.")


def test_a_group_that_is_not_listed_is_requested_by_name(system: System) -> None:
    """If a broker did not answer the listing, its coordinator is asked, so its state is current."""
    system.cluster.unlisted, system.cluster.listing_fails = {"well"}, True
    well = state(system.run(30), "well")
    assert (well.gone, well.stale, well.seen_ms) == (False, False, system.now_ms)


@pytest.mark.parametrize("what", ["describe", "offsets"])
def test_a_client_without_an_answer_about_a_group_is_replaced(system: System, what: str) -> None:
    """If it found the coordinator later, librdkafka would abort the process. An error of a broker replaces nothing."""
    system.cluster.fail = {(what, "slow")}
    system.run(2)
    assert system.clients == 1
    system.cluster.error = KafkaError(KafkaError._TIMED_OUT)
    system.run(2)
    assert system.clients == 3
    system.cluster.fail.clear()
    assert not state(system.run(2), "slow").stale
    assert system.clients == 3


def test_a_client_that_never_answers_is_replaced() -> None:
    """Its request ends at the deadline. It may still be waiting for the coordinator of a group."""
    clients: list[AdminClient] = []

    def connect() -> AdminClient:
        clients.append(cast("AdminClient", SimpleNamespace(list_consumer_groups=lambda **_: Future[Any]())))
        return clients[-1]

    fetcher = OffsetFetcher(connect, timeout=-5, stopping=lambda: False)  # so the deadline is now
    with pytest.raises(BrokerUnavailableError):
        fetcher.fetch(Patterns(("*", ""), ()))
    assert len(clients) == 2


def test_only_a_complete_listing_makes_a_group_gone(system: System) -> None:
    """A deleted group is stale while a broker does not answer the listing, and GONE when all do."""
    del system.cluster.groups["well"]
    system.cluster.listing_fails = True
    well = state(system.run(), "well")
    assert (well.gone, "not read" in well.evaluation.reason) == (False, True)
    system.cluster.listing_fails = False
    well = state(system.run(), "well")
    assert (well.gone, well.stale, well.evaluation.status) == (True, False, Status.NOTFOUND)
    assert state(system.run(), "well").gone


def test_a_restart_in_an_outage_keeps_the_alert(system: System) -> None:
    """A collector that starts while a group cannot be read has the states of it and its partitions from the store."""
    system.cluster.fail, system.cluster.unlisted = UNREAD["listing"], {"slow"}
    system.cluster.listing_fails = True
    system.run(3)
    for _ in range(2):
        system.restart()
        slow = state(system.run(), "slow")
        assert (slow.evaluation.status, "not read" in slow.evaluation.reason) == (Status.ERR, True)
        assert [one.evaluation.status for one in slow.partitions] == [Status.STALL, Status.OK]
    assert slow.lag == sum(one.lag or 0 for one in slow.partitions)


def test_without_a_description_members_and_partitions_are_kept(system: System) -> None:
    """Partitions without a commit are kept, STALL does not become STOP, and no committed offsets are requested."""
    system.cluster.groups["slow"].assigned.add(("late", 0))
    system.cluster.ends["late", 0] = 40
    assert state(system.run(), "slow").partition_count == 3
    system.cluster.fail = {("describe", "slow")}
    slow = state(system.run(), "slow")
    assert {one.name: one.evaluation.status for one in slow.partitions} == {
        "slow/0": Status.OK,
        "slow/1": Status.STALL,
        "late/0": Status.NOTFOUND,
    }
    assert (all(one.stale for one in slow.partitions), slow.members) == (True, 1)
    assert system.cluster.committed_of == {"well"}


def test_a_partition_that_was_never_read_is_not_ok(system: System) -> None:
    """A new group names the partition whose end is missing. A group of which only the name is known is left out."""
    system.cluster.groups["new"] = Group({("well", 0): 1, ("slow", 0): 1})
    system.cluster.groups["none"] = Group({("well", 0): 1})
    system.cluster.fail = {("end", "well", 0), ("offsets", "none")}
    result = system.run()
    new = state(result, "new")
    assert [(one.name, one.stale, one.lag) for one in new.partitions if one.topic == "well"] == [
        ("well/0", True, None),
        ("well/1", False, None),
    ]
    assert "well/0" in new.evaluation.reason
    assert "none" not in [one.group for one in result.states]


def test_a_deleted_topic_is_removed_from_the_group(system: System) -> None:
    """A topic that the broker reports as deleted is not stale, although another partition is."""
    system.cluster.groups["well"].committed["other", 0] = 7
    system.cluster.ends["other", 0] = 7
    system.cluster.fail = {("end", "well", 0)}
    assert state(system.run(), "well").partition_count == 3
    del system.cluster.ends["other", 0]
    well = state(system.run(), "well")
    assert [one.name for one in well.partitions] == ["well/0", "well/1"]
    assert [one.stale for one in well.partitions] == [True, False]


def test_the_time_of_a_round_is_when_the_ends_were_answered(system: System) -> None:
    """In a slow round, a record that arrived before the answer is not counted as older than it is."""
    began_ms = system.now_ms

    def wait(_request: str) -> None:
        system.second += 8

    system.cluster.on_request = wait
    result = system.tracker.round()
    assert result.ts_ms == began_ms + 16_000, "the answers about the groups, and then those about the ends"


def test_the_group_with_the_empty_id_is_named_and_not_requested(system: System) -> None:
    """Old clients without a group.id make it, and the Kafka client can't request it. Other groups are read."""
    system.cluster.groups[""] = Group({("well", 0): 1})
    result = system.run()
    assert NAMELESS in result.problems
    assert [one.group for one in result.states] == ["slow", "well"]
    assert system.cluster.committed_of == {"slow", "well"}
    system.restart(exclude=("",))
    assert system.run().problems == ()
