"""The permissions of every command, which docs/security.md lists, as ACL bindings for a broker."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tallystream_cli.permissions import PERMISSIONS, Permission
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "a-p4ssword"
PAGE = Path(__file__).parents[2] / "docs" / "security.md"


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
        """Return librdkafka's options for a user."""
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


@contextmanager
def acl_broker(folder: Path) -> Iterator[AclBroker]:
    """Run a broker with the ACLs; its first listener has no login, and allows everything."""
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
    with KafkaBroker(folder, listeners={"SASL_PLAINTEXT": port}, properties=properties) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        wanted = [binding for one in PERMISSIONS for binding in bindings(one)]
        for future in admin.create_acls(wanted).values():
            future.result(30)
        yield AclBroker(broker, f"127.0.0.1:{port}")
