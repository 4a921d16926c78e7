"""Checks of this user's permissions in Kafka, from the operations that the brokers allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.kafka.topics import policies
from tallystream_cli.doctor.findings import failed, not_checked, ok
from tallystream_cli.permissions import PERMISSIONS, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.doctor.broker import Cluster
    from tallystream_cli.doctor.findings import Finding
    from tallystream_cli.permissions import Permission

EXAMPLE = "tallystream-doctor"
"""The name that stands for the names that a prefix covers. No group has it."""


def group_names(prefix: str) -> set[str]:
    """Return the groups to ask for: those of the table, and an example for each prefix."""
    wanted = (one.with_prefix(prefix) for one in PERMISSIONS if one.resource == "group")
    return {_example(one.name) for one in wanted}


def transactional_id(prefix: str) -> str:
    """Return a transactional ID that the aggregator's permission covers, and that nobody uses."""
    return f"{prefix}tallystream-aggregator-doctor"


def of_command(cluster: Cluster, topics: Topics, command: str) -> Finding:
    """Check that this user has the permissions of a command."""
    check = f"permissions of {command}"
    needed = [one.with_prefix(topics.prefix) for one in PERMISSIONS if one.command == command]
    answers = [(one, _lacking(one, cluster, topics)) for one in needed]
    lacking = [f"{'/'.join(found)} on {one.resource} {one.name}" for one, found in answers if found]
    unknown = [f"{one.resource} {one.name}" for one, found in answers if found is None]
    if lacking:
        return failed(check, f"this user lacks {', '.join(lacking)}", "add the ACLs, as in docs/security.md")
    if unknown:
        found = f"{', '.join(unknown)} can't be asked for before the aggregator has run"
        return (
            not_checked(check, found) if len(unknown) == len(needed) else ok(check, f"nothing is missing, but {found}")
        )
    return ok(check, "complete")


def _lacking(one: Permission, cluster: Cluster, topics: Topics) -> list[str] | None:
    """Return the operations that this user lacks, None if that can't be asked for."""
    # An existing topic need not be created, and a missing one can't be asked for.
    needed = [operation for operation in one.operations if operation != "Create"]
    if one.resource == TRANSACTIONAL_ID:
        opened = cluster.transactions
        return None if opened is None else needed if opened.endswith("AUTHORIZATION_FAILED") else []
    for name in _names(one, cluster, topics):
        found = (cluster.topics if one.resource == "topic" else cluster.groups).get(name)
        if name in cluster.refused:
            return needed
        if found is None or found.operations is None:
            return None
        if denied := [operation for operation in needed if operation not in found.operations]:
            return denied
    return []


def _names(one: Permission, cluster: Cluster, topics: Topics) -> Iterator[str]:
    """Yield the topics or groups to look at. A table of one shard does not have the topic for shards."""
    for name in policies(topics) if (one.resource, one.name) == ("topic", "*") else [_example(one.name)]:
        if name != topics.shards or name in cluster.topics or name in cluster.refused or not cluster.topics:
            yield name


def _example(name: str) -> str:
    return name[:-1] + EXAMPLE if name.endswith("*") else name
