"""The shipper as a member of a group: what it reads, commits, and drops when its partitions go to another member."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException

from support.consumer import Message, ScriptedConsumer, end
from tallystream_aggregator.shipping import subscription
from tallystream_aggregator.shipping.subscription import Subscription
from tallystream_aggregator.stream.broker import BrokerError, Place

KAFKA = {"bootstrap.servers": "localhost:1"}


class Member:
    """A subscription to `t` and `u` on a scripted consumer. `ids` are the IDs of the topics."""

    def __init__(self, *, kafka: dict[str, str] | None = None) -> None:
        self.consumer = ScriptedConsumer()
        self.ids = {"t": "1", "u": "1"}
        self.subscription = Subscription(
            {**KAFKA, **(kafka or {})},
            "g",
            ["t", "u"],
            lambda _: dict(self.ids),
            connect=self.consumer.connect,
        )

    def read(self, *messages: Message) -> list[tuple[str, int]]:
        """Return topic and offset of what is read, if these messages come next."""
        self.consumer.script += messages
        return [(one.topic, one.offset) for one in self.subscription.read(100, 0.01)]

    def ship(self) -> None:
        """Note that what was read is written."""
        self.subscription.written()

    def ask(self) -> bool:
        """Ask the brokers."""
        self.subscription._ask_due_s = 0
        return self.subscription.ask()


@pytest.fixture
def member() -> Member:
    """A member that has partition 0 of both topics."""
    made = Member()
    made.consumer.assign_topics("t", "u")
    assert made.read() == []
    assert made.subscription.places == {Place("t", 0), Place("u", 0)}
    return made


def test_offsets_are_committed_after_what_was_read_is_written(member: Member) -> None:
    """What was only read is not committed."""
    assert member.read(Message("t", 4), Message("t", 5), Message("u", 9)) == [("t", 4), ("t", 5), ("u", 9)]
    assert member.consumer.stored == {}
    member.ship()
    assert member.read(Message("t", 6)) == [("t", 6)]
    assert member.consumer.stored == {"t": 6, "u": 10}
    member.ship()
    assert member.consumer.stored == {"t": 7, "u": 10}


def test_the_end_of_a_partition_is_committed(member: Member) -> None:
    """The marker of a transaction takes an offset. Without it, the group would show a lag of 1 for ever."""
    assert member.read(Message("t", 4), end("t", 6), end("u", 0)) == [("t", 4)]
    member.ship()
    assert member.consumer.stored == {"t": 6, "u": 0}


def test_what_was_read_and_is_not_written_is_dropped_with_the_partitions(member: Member) -> None:
    """The other member reads it."""
    member.read(Message("t", 4))
    member.ship()
    changes = member.subscription.changes
    member.consumer.script.append(Message("t", 5))
    member.consumer.revoke()
    assert member.read() == []
    member.ship()
    assert member.consumer.stored == {"t": 5}
    assert (member.subscription.places, member.subscription.changes) == (None, changes + 1)


def test_an_excluded_member_commits_nothing(member: Member) -> None:
    """Another member may have written more by then."""
    member.read(Message("t", 4))
    member.consumer.lose()
    assert member.read() == []
    assert member.subscription.places is None
    member.ship()
    assert member.consumer.stored == {}


def test_records_before_a_new_assignment_are_dropped_and_those_after_it_are_read(member: Member) -> None:
    """All happens in one call."""
    member.consumer.script.append(Message("t", 4))
    member.consumer.revoke()
    member.consumer.assign_topics("t", "u")
    assert member.read(Message("t", 2)) == [("t", 2)]


def test_a_member_without_partitions_stands_by() -> None:
    """Before the group has decided, it is not known."""
    member = Member()
    assert member.read() == []
    assert member.subscription.places is None
    member.consumer.assign_topics()
    assert member.read() == []
    assert member.subscription.places == frozenset()


def test_a_read_ends_when_it_has_many_bytes(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next read has the rest."""
    monkeypatch.setattr(subscription, "MAX_BYTES", 2)
    assert member.read(*(Message("t", offset) for offset in range(3))) == [("t", 0), ("t", 1)]
    member.ship()
    assert member.read() == [("t", 2)]
    assert member.consumer.stored == {"t": 2}


def test_while_it_waits_it_reads_nothing_and_hears_of_the_group(member: Member) -> None:
    """The next `read` goes on."""
    member.subscription.wait(0.01)
    assert member.consumer.paused
    assert member.read(Message("t", 4)) == [("t", 4)]
    assert not member.consumer.paused
    changes = member.subscription.changes
    member.consumer.revoke()
    member.subscription.wait(0.01)
    assert member.subscription.changes == changes + 1


def test_a_partition_that_moved_while_it_was_paused_is_read_when_it_comes_back(member: Member) -> None:
    """In librdkafka it stays paused. It would never be read again, while the shipper counts as ready."""
    member.subscription.wait(0.01)
    member.consumer.revoke()
    member.consumer.assign_topics("t")
    member.subscription.wait(0.01)
    assert member.read(Message("t", 4)) == [("t", 4)]
    member.consumer.revoke()
    member.consumer.assign_topics("t", "u")
    assert member.read() == []
    assert member.read(Message("u", 7)) == [("u", 7)]


def test_a_partition_that_librdkafka_does_not_keep_paused_is_paused_again(member: Member) -> None:
    """As that of a topic which was created again. Otherwise an outage of the store would read all of it into memory."""
    member.consumer.revoke()
    member.subscription.wait(0.01)
    member.consumer.assign_topics("t", "u")
    assert member.read() == []
    member.consumer.paused.clear()
    member.consumer.script.append(Message("t", 4))
    member.subscription.wait(0.01)
    assert member.consumer.paused == {"t", "u"}
    assert member.read() == [("t", 4)]


def test_a_topic_that_is_created_again_is_read_from_its_beginning(member: Member) -> None:
    """Its old position is not committed, and one that may be committed already is replaced. The other topic goes on."""
    assert member.ask()
    member.read(Message("t", 40), Message("u", 7))
    member.ship()
    member.ids["t"] = "2"
    changes = member.subscription.changes
    member.ask()
    assert member.consumer.sought == [("t", OFFSET_BEGINNING)]
    assert member.subscription.changes == changes + 1
    assert (member.consumer.stored, member.consumer.committed) == ({"t": 0, "u": 8}, [{"t": 0}])
    member.read(Message("u", 8))
    member.ship()
    assert member.consumer.stored == {"t": 0, "u": 9}
    member.ask()
    assert len(member.consumer.sought) == 1


def test_a_deleted_topic_is_waited_for(member: Member) -> None:
    """When it exists again, it has another ID."""
    member.ask()
    del member.ids["t"]
    member.ask()
    assert member.consumer.sought == []
    member.ids["t"] = "2"
    member.ask()
    assert member.consumer.sought == [("t", OFFSET_BEGINNING)]


def test_the_brokers_are_asked_every_two_seconds(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """`answered_s` tells when they answered last."""
    now_s = 100.0
    monkeypatch.setattr(subscription.time, "monotonic", lambda: now_s)
    assert member.ask()
    now_s += 1.5
    assert not member.subscription.ask()
    now_s += 0.5
    assert member.subscription.ask()

    def away(_: object) -> dict[str, str]:
        raise BrokerError("no answer")

    member.subscription._ask_ids = away
    now_s += 3
    assert not member.subscription.ask()
    assert member.subscription.answered_s == 102.0


def test_an_outage_is_waited_out_and_a_missing_permission_is_an_error(member: Member) -> None:
    """A consumer connects again by itself."""
    outage = Message("", -1, error=KafkaError._ALL_BROKERS_DOWN)
    assert member.read(outage, Message("t", 4)) == [("t", 4)]
    with pytest.raises(KafkaException):
        member.read(Message("t", -1, error=KafkaError.TOPIC_AUTHORIZATION_FAILED))


def test_only_committed_transactions_are_read_whatever_the_options_are() -> None:
    """The group's timeouts may be changed."""
    options = {"isolation.level": "read_uncommitted", "enable.auto.commit": "false", "session.timeout.ms": "45000"}
    consumer = Member(kafka=options).consumer
    wanted = {"isolation.level": "read_committed", "enable.auto.offset.store": False, "session.timeout.ms": "45000"}
    assert {name: consumer.options[name] for name in wanted} == wanted
