"""Checks of this user's permissions in Kafka, from the operations that the brokers allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.kafka.topics import policies
from tallystream_cli.doctor.findings import failed, not_checked, ok, warning
from tallystream_cli.permissions import PERMISSIONS, TRANSACTIONAL_ID, commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.doctor.cluster import Cluster
    from tallystream_cli.doctor.findings import Finding
    from tallystream_cli.permissions import Permission

CHECK = "permissions"
EXAMPLE = "tallystream-doctor"
"""The name that stands for the names that a prefix covers. No group has it."""


def group_names(prefix: str) -> set[str]:
    """Return the groups to ask for: those of the table, and an example for each prefix."""
    wanted = (one.with_prefix(prefix) for one in PERMISSIONS if one.resource == "group")
    return {_example(one.name) for one in wanted}


def transactional_id(prefix: str) -> str:
    """Return a transactional ID that the aggregator's permission covers, and that nobody uses."""
    return f"{prefix}tallystream-aggregator-doctor"


def permissions(cluster: Cluster, topics: Topics, named: Iterable[str]) -> Iterator[Finding]:
    """Check the permissions of the commands in `named`, one finding each; if there are none, of all commands."""
    names = list(named)
    for command in names:
        yield of_command(cluster, topics, command)
    if not names:
        yield of_all(cluster, topics)


def of_command(cluster: Cluster, topics: Topics, command: str) -> Finding:
    """Check that this user has the permissions of a command."""
    check = f"{CHECK} of {command}"
    lacking, unknown = missing(cluster, topics, command)
    if lacking:
        return failed(check, f"this user lacks {', '.join(lacking)}", "add the ACLs, as in docs/security.md")
    if unknown:
        found = f"{', '.join(unknown)} can't be asked for before the aggregator has run"
        all_unknown = len(unknown) == len(_of(command, topics))
        return not_checked(check, found) if all_unknown else ok(check, f"nothing is missing, but {found}")
    return ok(check, "complete")


def of_all(cluster: Cluster, topics: Topics) -> Finding:
    """Check which commands this user may run. Each command can have its own user, so a part of them is enough."""
    if not cluster.topics and not cluster.refused:
        return not_checked(CHECK, "they can't be asked for before the aggregator has created the topics")
    lacking = {command: missing(cluster, topics, command)[0] for command in commands()}
    complete = [command for command, found in lacking.items() if not found]
    if not any(lacking.values()):
        return ok(CHECK, "this user may run every command")
    closest = min((one for one in lacking if lacking[one]), key=lambda one: len(lacking[one]))
    text = f"{closest} lacks {', '.join(lacking[closest])}"
    remedy = "add the ACLs, as in docs/security.md; --command checks one command"
    if complete:
        return warning(CHECK, f"this user may run {', '.join(complete)}, not others; {text}", remedy)
    return failed(CHECK, f"this user may run no command; {text}", remedy)


def missing(cluster: Cluster, topics: Topics, command: str) -> tuple[list[str], list[str]]:
    """Return what a command lacks, as in "Write on topic metrics", and the resources that could not be asked for."""
    lacking: list[str] = []
    unknown: list[str] = []
    for one in _of(command, topics):
        where = f"{one.resource} {one.name}"
        # An existing topic need not be created, and a missing one can't be asked for.
        needed = [operation for operation in one.operations if operation != "Create"]
        if one.resource == TRANSACTIONAL_ID:
            if cluster.transactions is None:
                unknown.append(where)
            elif cluster.transactions.endswith("AUTHORIZATION_FAILED"):
                lacking.append(f"{'/'.join(needed)} on {where}")
            continue
        for name in policies(topics) if (one.resource, one.name) == ("topic", "*") else [_example(one.name)]:
            if name in (cluster.refused if one.resource == "topic" else cluster.refused_groups):
                lacking.append(f"{'/'.join(needed)} on {where}")
                break
            if name == topics.shards and name not in cluster.topics and cluster.topics:
                break  # a table of one shard does not have it
            found = (cluster.topics if one.resource == "topic" else cluster.groups).get(name)
            if found is None or found.operations is None:
                unknown.append(where)
                break
            if denied := [operation for operation in needed if operation not in found.operations]:
                lacking.append(f"{'/'.join(denied)} on {where}")
                break
    return lacking, unknown


def _of(command: str, topics: Topics) -> list[Permission]:
    return [one.with_prefix(topics.prefix) for one in PERMISSIONS if one.command == command]


def _example(name: str) -> str:
    return name[:-1] + EXAMPLE if name.endswith("*") else name
