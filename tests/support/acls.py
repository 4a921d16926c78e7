"""The permissions in Kafka that each command needs, as the table in docs/security.md has them."""

from __future__ import annotations

import re
from typing import NamedTuple

from support.reference import DOCS


class Permission(NamedTuple):
    """The operations that a command performs on a topic, a group or a transactional ID, in Kafka's words.

    A `name` that ends in `*` is a prefix; `*` alone is every name.
    """

    command: str
    resource: str
    name: str
    operations: tuple[str, ...]


def permissions() -> list[Permission]:
    """Return the permissions of all commands."""
    text = (DOCS / "security.md").read_text(encoding="utf-8")
    table = text.partition("| command | resource | operations | names |\n|---|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [re.split(r" \| ", line.strip("| ")) for line in table.splitlines()]
    return [
        Permission(command, resource, name, tuple(operations.split(", ")))
        for command, resource, operations, names in rows
        for name in names.replace("`", "").split(", ")
    ]


PERMISSIONS = permissions()
