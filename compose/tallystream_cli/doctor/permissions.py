"""Checks of this user's permissions in Kafka, from the operations that the brokers allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.kafka.topics import policies
from tallystream_cli.doctor.findings import failed, not_checked, ok
from tallystream_cli.permissions import PERMISSIONS, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.doctor.broker import Brokers
    from tallystream_cli.doctor.findings import Finding
    from tallystream_cli.permissions import Permission

EXAMPLE = "tallystream-doctor"
"""The name that stands for the names that a prefix covers. No group has it."""


def group_names(prefix: str) -> set[str]:
    """Return the groups to ask for: those of the table, and an example for each prefix."""
    wanted = (one.with_prefix(prefix) for one in PERMISSIONS if one.resource == "group")
    return {_example(one.name) for one in wanted}


def of_command(brokers: Brokers, topics: Topics, command: str) -> Finding:
    """Check that this user has the permissions of a command."""
    check = f"permissions of {command}"
    needed = [one.with_prefix(topics.prefix) for one in PERMISSIONS if one.command == command]
    answers = [(one, _lacking(one, brokers, topics)) for one in needed]
    lacking = [f"{'/'.join(found)} on {one.resource} {one.name}" for one, found in answers if found]
    unknown = [f"{one.resource} {one.name}" for one, found in answers if found is None]
    if lacking:
        return failed(check, f"this user lacks {', '.join(lacking)}", "add the ACLs, as in docs/security.md")
    found = f"{', '.join(unknown)} can't be asked for before the aggregator has run"
    if len(unknown) == len(needed):
        return not_checked(check, found)
    return ok(check, f"nothing is missing, but {found}" if unknown else "complete")


def _lacking(one: Permission, brokers: Brokers, topics: Topics) -> list[str] | None:
    """Return the operations that this user lacks, None if that can't be asked for."""
    # An existing topic need not be created, and a missing one can't be asked for.
    needed = [operation for operation in one.operations if operation != "Create"]
    if one.resource == TRANSACTIONAL_ID:
        return needed if brokers.transactions.endswith("AUTHORIZATION_FAILED") else []
    described = brokers.topics if one.resource == "topic" else brokers.groups
    names = policies(topics) if (one.resource, one.name) == ("topic", "*") else [_example(one.name)]
    for name in names:
        if name in brokers.refused:
            return needed
        if name == topics.shards and name not in described and described:  # a table of one shard does not have it
            continue
        if name not in described or (allowed := described[name].authorized_operations) is None:
            return None
        words = {"".join(word.capitalize() for word in operation.name.split("_")) for operation in allowed}
        if denied := [operation for operation in needed if operation not in words]:
            return denied
    return []


def _example(name: str) -> str:
    return name[:-1] + EXAMPLE if name.endswith("*") else name
