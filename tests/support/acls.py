"""The permissions of every command, which docs/security.md lists, as ACL bindings for a broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tallystream_cli.permissions import PERMISSIONS

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


class Acl(NamedTuple):
    """One row: the operations that a command may perform on a topic or a group."""

    command: str
    resource: str
    name: str
    operations: tuple[str, ...]

    def bindings(self, principal: str) -> list[AclBinding]:
        """Return its bindings for a principal, such as User:ana, from every host."""
        prefixed = self.name.endswith("*") and self.name != "*"
        kind = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        resource = ResourceType[self.resource.upper()]
        name = self.name[:-1] if prefixed else self.name
        return [
            AclBinding(resource, name, kind, principal, "*", AclOperation[operation], AclPermissionType.ALLOW)
            for operation in self.operations
        ]


def acls() -> list[Acl]:
    """Return the permissions of every command."""
    return [
        Acl(one.command, one.resource, one.name, tuple(_constant(word) for word in one.operations))
        for one in PERMISSIONS
    ]


def _constant(word: str) -> str:
    """Return `DESCRIBE_CONFIGS` for `DescribeConfigs`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).upper()
