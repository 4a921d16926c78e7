"""The ACLs of docs/security.md on a broker that enforces them: each command works with its own and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from support.acls import PERMISSIONS, Permission
from support.commands import run, running
from support.doctor import doctor
from support.kafka import end_offsets
from support.stores import content
from support.wait import wait_until
from tallystream import KafkaReporter, MetricRegistry
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.process import free_port

PASSWORD = "a-p4ssword"


def operation(word: str) -> AclOperation:
    """Return Kafka's operation of a word: DESCRIBE_CONFIGS for `DescribeConfigs`."""
    return AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).upper()]


def bindings(one: Permission) -> list[AclBinding]:
    """Return the bindings of a permission for the user with the name of its command, from every host."""
    prefixed = one.name.endswith("*") and one.name != "*"
    kind = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    resource = ResourceType[one.resource.upper().replace(" ", "_")]
    name, user = one.name[:-1] if prefixed else one.name, f"User:{one.command.replace(' ', '-')}"
    return [
        AclBinding(resource, name, kind, user, "*", operation(word), AclPermissionType.ALLOW) for word in one.operations
    ]


class AclBroker(NamedTuple):
    """A broker where the user with the name of a command has the ACLs of that command."""

    broker: KafkaBroker
    servers: str

    def kafka(self, user: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user.replace(" ", "-"),
            "sasl.password": PASSWORD,
        }

    def env(self, user: str) -> dict[str, str]:
        """Return the environment for a command of a user."""
        options = {f"TALLYSTREAM_KAFKA_{k.upper().replace('.', '_')}": v for k, v in self.kafka(user).items()}
        options["TALLYSTREAM_BOOTSTRAP_SERVERS"] = options.pop("TALLYSTREAM_KAFKA_BOOTSTRAP_SERVERS")
        return {**options, "TALLYSTREAM_NO_OWN_METRICS": "false"}


pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
LIMIT_S = 180.0
TOPICS = Topics()


@pytest.fixture(scope="module")
def acl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclBroker]:
    """A broker with the ACLs and the topics; its first listener has no login, and allows everything."""
    port = free_port()
    users = sorted({one.command.replace(" ", "-") for one in PERMISSIONS})
    passwords = "".join(f' user_{user}="{PASSWORD}"' for user in users)
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required{passwords};"
        ),
    }
    with KafkaBroker(
        tmp_path_factory.mktemp("acls"), listeners={"SASL_PLAINTEXT": port}, properties=properties
    ) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        wanted = [binding for one in PERMISSIONS for binding in bindings(one)]
        for future in admin.create_acls(wanted).values():
            future.result(30)
        found = AclBroker(broker, f"127.0.0.1:{port}")
        create_topics(AdminClient(found.kafka("aggregate")), TOPICS)
        yield found


@pytest.fixture(scope="module")
def summed(acl_broker: AclBroker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A count of 4711, reported and summed with the ACLs of both commands; returns the aggregator's errors."""
    registry = MetricRegistry("orders")
    registry.counter("records.processed").inc(4711)
    kafka = acl_broker.kafka("reporter")
    servers = kafka.pop("bootstrap.servers")
    with KafkaReporter(registry, bootstrap_servers=servers, instance="orders-1", options=kafka) as reporter:
        assert reporter.report_now(timeout=30)
    checkpoint = tmp_path_factory.mktemp("summed") / "checkpoint"
    done = run("aggregate", "--checkpoint", str(checkpoint), "--catch-up", env=acl_broker.env("aggregate"))
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_doctor_sees_what_its_user_may_describe(acl_broker: AclBroker) -> None:
    """With its own permissions it sees every topic, but no transaction: it may not use the transactional IDs."""
    assert doctor(env=acl_broker.env("aggregate")).lines["transactions"].status == "ok"
    own = doctor(env=acl_broker.env("doctor"))
    assert own.code == 0, own.failed
    assert own.lines["transactions"].status == "not checked"
    assert {line.status for check, line in own.lines.items() if check.startswith("topic ")} == {"ok"}
    assert "may not describe all groups and topics" in own.lines["lag"].found
    assert doctor(env=acl_broker.env("lag-collect")).lines["lag"].status == "ok"


def test_a_command_names_what_it_may_not_use(acl_broker: AclBroker, tmp_path: Path) -> None:
    """With the permissions of another command, the aggregator ends, and says of what it lacks one."""
    refused = run("aggregate", "--checkpoint", str(tmp_path / "checkpoint"), env=acl_broker.env("doctor"))
    assert refused.returncode == 1, refused.stderr
    assert "uthorization failed" in refused.stderr.splitlines()[-1]


def test_a_publisher_may_not_write_sums(acl_broker: AclBroker) -> None:
    """With the ACLs of a reporter only `metrics` can be written."""
    producer = Producer({**acl_broker.kafka("reporter"), "message.timeout.ms": 10_000})
    refused: list[str] = []
    for topic in (TOPICS.agg, TOPICS.table, TOPICS.events, TOPICS.ledger, TOPICS.dead):
        producer.produce(topic, value=b"x", on_delivery=lambda error, _: refused.append(error.name()))
    producer.flush(30)
    assert refused == ["TOPIC_AUTHORIZATION_FAILED"] * 5
    with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
        create_topics(AdminClient(acl_broker.kafka("reporter")), Topics("other-"))


def measurements(store: StoreSettings) -> list[str]:
    reader = open_store(store)
    try:
        return reader.measurements()
    finally:
        reader.close()


def test_each_command_works_with_its_own_permissions(acl_broker: AclBroker, summed: str, tmp_path: Path) -> None:
    """A count is reported, summed, shipped and verified, and has a lag, without an authorization error."""
    outputs = {"aggregate": summed}
    for name, arguments in (
        ("verify", ()),
        ("rebuild", ("--drop-tag", "none")),
        ("forget", ("--instance", "orders-1")),
    ):
        done = run(name, *arguments, env=acl_broker.env(name))
        assert done.returncode == 0, (name, done.stdout + done.stderr)
        outputs[name] = done.stderr

    # Two stores, so that neither waits for transactions of the other.
    sums, lag = (StoreSettings.parse(f"local:{tmp_path / name}.db", env={}) for name in ("sums", "lag"))
    ship = ("ship", "--rows", "--store", sums.spec)
    collect = ("lag", "collect", "--store", lag.spec, "--interval", "1")
    logs = {"ship": tmp_path / "ship.log", "lag collect": tmp_path / "lag.log"}
    with (
        running(logs["lag collect"], *collect, env=acl_broker.env("lag collect")) as collecting,
        running(logs["ship"], *ship, env=acl_broker.env("ship")) as shipping,
    ):

        def both_write() -> bool:
            for process, log in ((shipping, logs["ship"]), (collecting, logs["lag collect"])):
                assert process.poll() is None, log.read_text()
            found = {name for store in (sums, lag) for name in measurements(store)}
            return found >= {"records.processed", "instance:records.processed", "tallystream.lag.groups"}

        wait_until(both_write, LIMIT_S, "sums, instances and lag are in the stores")

        def both_have_a_lag() -> bool:
            groups = ({"group": "tallystream-aggregator"}, {"group": "tallystream-shipper"})
            return all(content(lag, "tallystream.lag.groups", ["lag"], tags=tags) for tags in groups)

        wait_until(both_have_a_lag, LIMIT_S, "the lag of both queries is in the store")
    assert (collecting.returncode, shipping.returncode) == (0, 0)
    (values,) = content(sums, "records.processed", ["count"]).values()
    assert {fields["count"] for fields in values.values()} == {4711}
    outputs |= {name: log.read_text() for name, log in logs.items()}
    assert not [(name, line) for name, text in outputs.items() for line in text.splitlines() if "uthoriz" in line]


def test_forget_without_the_permission_to_write_publishes_nothing(acl_broker: AclBroker, summed: str) -> None:
    """A user that may read the table but not write `metrics` sees what would be removed."""
    assert "uthoriz" not in summed
    servers = acl_broker.broker.bootstrap_servers
    before = end_offsets(servers, TOPICS.metrics)
    refused = run("forget", "--metric", "records.processed", "--yes", env=acl_broker.env("rebuild"))
    assert refused.returncode == 1, refused.stderr
    assert "records.processed" in refused.stdout
    assert "Topic authorization failed" in refused.stderr
    assert end_offsets(servers, TOPICS.metrics) == before
